"""One GPU's memory and one pod's host memory, by part."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """A named share of one GPU's memory."""

    name: str
    size_bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """One GPU's memory by part; ``headroom`` is the last part, so the parts sum to ``total_bytes`` exactly."""

    parts: tuple[MemoryPart, ...]

    @property
    def total_bytes(self) -> int:
        """What the engine sees on the GPU."""
        return sum(part.size_bytes for part in self.parts)

    def part(self, name: str) -> MemoryPart:
        """Return the part called ``name``; KeyError if there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResources:
    """What one pod needs beside its GPUs."""

    cpu_cores: int
    memory_bytes: int
    shared_memory_bytes: int
