"""Laws of the memory arithmetic that hold for every setting."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.model_shapes import model_configs, shape_of
from tests.conformance.vectors import DATA
from vlm_operator.catalogue.load import memory_calibration
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.legality import check_tensor_parallel
from vlm_operator.sizing.memory import ImageBatch, MemoryRequest, breakdown, estimate_memory
from vlm_operator.sizing.memory_constants import constants_at
from vlm_operator.sizing.weights import weights_per_rank
from vlm_operator.units import GIB, MIB

SHAPES = [shape for model in sorted(model_configs(DATA)) if (shape := shape_of(DATA, model)) is not None]
LIKELY = constants_at(memory_calibration(), "value")
PESSIMISTIC = constants_at(memory_calibration(), "high")
GPU = GpuKind(
    id="any",
    product="ANY",
    display_name="any",
    vendor="nvidia",
    compute_capability=(9, 0),
    driver_memory_bytes=80 * GIB,
    engine_memory_bytes=80 * GIB,
    engine_memory_certainty="estimated",
    bandwidth_bytes_per_second=1e12,
    bf16_flops=None,
    fp8_flops=None,
    link_bytes_per_second=None,
    hourly_cents=None,
)


@st.composite
def _requests(draw: st.DrawFn) -> MemoryRequest:
    memory = draw(st.integers(8 * GIB, 300 * GIB))
    tokens = draw(st.integers(64, 20_000))
    return MemoryRequest(
        shape=draw(st.sampled_from(SHAPES)),
        gpu=dataclasses.replace(GPU, engine_memory_bytes=memory),
        tensor_parallel_size=draw(st.sampled_from([1, 2, 4, 8])),
        encoder_mode=draw(st.sampled_from(["weights", "data"])),
        utilization_percent=draw(st.integers(50, 95)),
        max_num_seqs=draw(st.integers(1, 256)),
        max_num_batched_tokens=draw(st.integers(512, 16_384)),
        max_model_len=draw(st.integers(256, 262_144)),
        dummy_patches=4 * tokens,
        engine_tokens=tokens,
        items=draw(st.integers(1, 8)),
        served=draw(st.none() | st.builds(ImageBatch, st.integers(1, 8), st.integers(1, 60_000), st.integers(1, 9000))),
    )


@given(_requests(), st.integers(0, 100 * GIB))
def test_parts_sum_to_the_gpu_in_whole_mebibytes(request: MemoryRequest, kv_bytes: int) -> None:
    table = breakdown(estimate_memory(request, LIKELY), estimate_memory(request, PESSIMISTIC), kv_bytes)
    assert table.total_bytes == request.gpu.engine_memory_bytes
    assert table.parts[-1].name == "headroom"
    assert all(part.size_bytes % MIB == 0 and part.size_bytes >= 0 for part in table.parts[:-1])


@given(_requests())
def test_a_plan_that_fits_keeps_its_headroom_to_the_rounding(request: MemoryRequest) -> None:
    estimate = estimate_memory(request, PESSIMISTIC)
    table = breakdown(estimate_memory(request, LIKELY), estimate, estimate.kv_available_bytes)
    if estimate.fits_outside and estimate.kv_available_bytes >= 0:
        assert table.parts[-1].size_bytes > -8 * MIB


@given(_requests())
def test_the_likely_estimate_lies_between_the_ends(request: MemoryRequest) -> None:
    low = constants_at(memory_calibration(), "low")
    taken = [estimate_memory(request, constants).need.taken_bytes for constants in (low, LIKELY, PESSIMISTIC)]
    assert taken == sorted(taken)


@given(_requests())
def test_more_of_anything_leaves_no_more_for_the_kv_cache(request: MemoryRequest) -> None:
    base = estimate_memory(request, LIKELY).kv_available_bytes
    more = dataclasses.replace(
        request,
        max_num_seqs=request.max_num_seqs + 8,
        max_num_batched_tokens=request.max_num_batched_tokens + 512,
        items=request.items + 1,
        dummy_patches=request.dummy_patches + 4,
        engine_tokens=request.engine_tokens + 1,
    )
    assert estimate_memory(more, LIKELY).kv_available_bytes <= base


@given(st.sampled_from(SHAPES), st.sampled_from([1, 2, 4, 8, 16]))
def test_ranks_together_hold_at_least_the_whole_model(shape: object, size: int) -> None:
    found = next(s for s in SHAPES if s is shape)
    if not check_tensor_parallel(found, size):
        whole, rank = weights_per_rank(found, 1), weights_per_rank(found, size)
        assert rank.total <= whole.total <= rank.total * size


@given(_requests())
def test_the_encoder_of_declared_images_fits_where_the_plan_fits(request: MemoryRequest) -> None:
    for constants in (LIKELY, PESSIMISTIC):
        estimate = estimate_memory(request, constants)
        if request.served is None or not estimate.fits_outside:
            continue
        items, patches, tokens = request.served
        served = dataclasses.replace(request, served=None, items=items, dummy_patches=patches, engine_tokens=tokens)
        largest = estimate_memory(served, constants).need.activations.encoder
        elsewhere = estimate.need.outside.total - estimate.need.outside.unprofiled
        room = estimate.engine_total_bytes - estimate.budget_bytes - elsewhere
        assert largest <= estimate.need.activations.peak + room
