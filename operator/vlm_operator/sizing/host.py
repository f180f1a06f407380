"""What one pod needs beside its GPUs: CPU cores, memory and /dev/shm."""

from dataclasses import dataclass

from vlm_operator.sizing.memory import MemoryRequest, whole_mib
from vlm_operator.sizing.memory_constants import MemoryConstants
from vlm_operator.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResources:
    """What one pod needs beside its GPUs."""

    cpu_cores: int
    memory_bytes: int
    shared_memory_bytes: int


def estimate_host(
    request: MemoryRequest,
    constants: MemoryConstants,
    *,
    preprocessing_cores: int = 2,
    processor_cache_gib: int = 4,
    processes: int = 1,
) -> HostResources:
    """Return what a pod needs: ``processes`` API processes, the engine core and one worker per GPU.

    CPU: 2 + GPUs (fact sheet 4.8) and the cores that prepare images. Memory: processor cache, pinned request
    state of each rank (2.4), a loader buffer, every process, and the shared memory, which counts against the
    container's limit.
    """
    size = request.tensor_parallel_size
    positions = 4 if request.shape.text.mrope else 1
    pinned = request.max_num_seqs * request.max_model_len * 4 * positions * size
    shared = constants.shared_memory + (size - 1) * GIB
    cache = processor_cache_gib * GIB * processes
    base = constants.process_memory * (processes + 1 + size)
    return HostResources(
        cpu_cores=2 + size + preprocessing_cores,
        memory_bytes=whole_mib(cache + pinned + constants.loader_memory + base + shared),
        shared_memory_bytes=shared,
    )
