"""Laws of what a pod needs beside its GPUs."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_memory_laws import LIKELY, PESSIMISTIC
from tests.property.test_memory_laws import _requests as memory_requests
from vlm_operator.sizing.host import HostMemory, estimate_host, host_memory
from vlm_operator.sizing.memory import MemoryRequest
from vlm_operator.units import MIB

PARTS = [field.name for field in dataclasses.fields(HostMemory)]


@given(memory_requests(), st.integers(1, 4), st.integers(0, 16))
def test_the_parts_of_a_pods_memory_sum_to_its_limit(request: MemoryRequest, processes: int, cache_gib: int) -> None:
    memory = host_memory(request, PESSIMISTIC, processes=processes, processor_cache_gib=cache_gib)
    parts = [getattr(memory, name) for name in PARTS]
    assert min(parts) >= 0
    assert 0 <= memory.total - sum(parts) < MIB
    resources = estimate_host(request, PESSIMISTIC, processes=processes, processor_cache_gib=cache_gib)
    assert resources.memory_bytes == memory.total
    assert resources.shared_memory_bytes == memory.shared_memory < resources.memory_bytes


@given(memory_requests())
def test_every_process_and_every_gpu_adds_to_the_pod(request: MemoryRequest) -> None:
    base = estimate_host(request, LIKELY)
    assert estimate_host(request, LIKELY, processes=2).memory_bytes > base.memory_bytes
    wider = dataclasses.replace(request, tensor_parallel_size=request.tensor_parallel_size + 1)
    more = estimate_host(wider, LIKELY)
    assert more.memory_bytes > base.memory_bytes
    assert more.cpu_cores == base.cpu_cores + 1
    assert more.shared_memory_bytes > base.shared_memory_bytes


@given(memory_requests())
def test_a_pod_is_never_promised_less_than_the_likely(request: MemoryRequest) -> None:
    assert estimate_host(request, PESSIMISTIC).memory_bytes >= estimate_host(request, LIKELY).memory_bytes
