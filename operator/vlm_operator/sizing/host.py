"""What one pod needs beside its GPUs: CPU cores, memory by part, and /dev/shm."""

from dataclasses import dataclass
from typing import Final

from vlm_operator.sizing.inventory import Resources
from vlm_operator.sizing.memory import MemoryRequest, whole_mib
from vlm_operator.sizing.memory_constants import MemoryConstants
from vlm_operator.units import GIB

MEDIA_THREADS: Final = 8
"""Images that one API process prepares at once (``VLLM_MEDIA_LOADING_THREAD_COUNT``, fact sheet 8.2)."""

PIXEL_BYTES: Final = 4
"""Image processors work in float32; the engine casts before it sends an image to a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The memory of one pod by part, in bytes.

    Attributes:
        processor_cache: Processed images that may come again: one cache for each API process (fact sheet 4.6).
        request_state: Pinned tokens and positions of every sequence, on every rank (fact sheet 2.4).
        images: Images that are being prepared.
        loader: The checkpoint's shard on its way to a GPU.
        processes: Interpreter, libraries and CUDA of API processes, engine core and workers.
        shared_memory: /dev/shm, which counts against the container's limit.
    """

    processor_cache: int
    request_state: int
    images: int
    loader: int
    processes: int
    shared_memory: int

    @property
    def total(self) -> int:
        """All of it, in whole MiB."""
        state = self.processor_cache + self.request_state + self.images
        return whole_mib(state + self.loader + self.processes + self.shared_memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResources:
    """What one pod needs beside its GPUs."""

    cpu_cores: int
    memory_bytes: int
    shared_memory_bytes: int

    def pod(self, gpus: int) -> Resources:
        """Return what the pod asks of its node in all; shared memory is part of the memory."""
        return Resources(gpus=gpus, cpu_cores=self.cpu_cores, memory_bytes=self.memory_bytes)


def engine_cores(gpus: int) -> int:
    """Return the cores of API process, engine core and one worker per GPU (fact sheet 4.8); images take more."""
    return 2 + gpus


def estimate_host(
    request: MemoryRequest,
    constants: MemoryConstants,
    *,
    preprocessing_cores: int = 2,
    processor_cache_gib: int = 4,
    processes: int = 1,
) -> HostResources:
    """Return what a pod needs: ``processes`` API processes, the engine core and one worker per GPU.

    CPU: that of these, and the cores that prepare images.
    """
    memory = host_memory(request, constants, processor_cache_gib=processor_cache_gib, processes=processes)
    return HostResources(
        cpu_cores=engine_cores(request.tensor_parallel_size) + preprocessing_cores,
        memory_bytes=memory.total,
        shared_memory_bytes=memory.shared_memory,
    )


def host_memory(
    request: MemoryRequest, constants: MemoryConstants, *, processor_cache_gib: int = 4, processes: int = 1
) -> HostMemory:
    """Return the memory of a pod by part; each further GPU adds a GiB of /dev/shm for its message queues."""
    size = request.tensor_parallel_size
    positions = 4 if request.shape.text.mrope else 1
    pixels = request.dummy_patches * request.shape.vision.patch_row * PIXEL_BYTES
    return HostMemory(
        processor_cache=processor_cache_gib * GIB * processes,
        request_state=request.max_num_seqs * request.max_model_len * 4 * positions * size,
        images=pixels * MEDIA_THREADS * processes,
        loader=constants.loader_memory,
        processes=constants.process_memory * (processes + 1 + size),
        shared_memory=constants.shared_memory + (size - 1) * GIB,
    )
