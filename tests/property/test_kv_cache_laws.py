"""Laws of the KV cache that hold for every checkpoint, setting, length and memory."""

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.conformance.model_shapes import model_configs, shape_of
from tests.conformance.vectors import DATA
from vlm_operator.sizing.kv_cache import (
    KVLayout,
    KVSettings,
    check_kv_cache,
    kv_bytes_per_token,
    kv_layout,
    longest_context,
    plan_kv_cache,
)
from vlm_operator.sizing.legality import check_tensor_parallel
from vlm_operator.sizing.shape import ModelShape, StateLayers
from vlm_operator.units import GIB

SHAPES = [shape for model in sorted(model_configs(DATA)) if (shape := shape_of(DATA, model)) is not None]
KINDS = {repr(shape.text.kv_layers): shape for shape in SHAPES}
"""One checkpoint of every layout: the others would only repeat it."""

LENGTHS = st.integers(1, 262_144)
FLIGHTS = st.integers(256, 32_768)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[ModelShape, KVSettings]:
    shape = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    settings = KVSettings(
        tensor_parallel_size=draw(st.sampled_from([1, 2, 4, 8])),
        capability=draw(st.sampled_from([(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])),
        dtype=draw(st.sampled_from(["auto", "fp8", "int8_per_token_head"])),
        prefix_caching=draw(st.booleans()),
        hybrid_manager=draw(st.booleans()),
    )
    assume(not check_tensor_parallel(shape, settings.tensor_parallel_size, "data"))
    assume(check_kv_cache(shape, settings) is None)
    return shape, settings


def _layout(case: tuple[ModelShape, KVSettings]) -> KVLayout:
    return kv_layout(*case)


@given(_cases(), LENGTHS, FLIGHTS)
def test_the_least_memory_starts_and_a_byte_less_does_not(
    case: tuple[ModelShape, KVSettings], length: int, flight: int
) -> None:
    layout = _layout(case)

    def starts(available: int) -> bool:
        return plan_kv_cache(
            layout, max_model_len=length, max_in_flight_tokens=flight, available_bytes=available
        ).starts

    least = plan_kv_cache(
        layout, max_model_len=length, max_in_flight_tokens=flight, available_bytes=0
    ).min_available_bytes
    assert starts(least)
    assert not starts(least - 1)


@given(_cases(), LENGTHS, FLIGHTS, st.integers(0, 200 * GIB), st.integers(0, GIB))
def test_more_memory_never_holds_less(
    case: tuple[ModelShape, KVSettings], length: int, flight: int, available: int, more: int
) -> None:
    layout = _layout(case)
    plans = [
        plan_kv_cache(layout, max_model_len=length, max_in_flight_tokens=flight, available_bytes=memory)
        for memory in (available, available + more)
    ]
    assert plans[0].num_blocks <= plans[1].num_blocks
    assert plans[0].tokens <= plans[1].tokens
    assert plans[0].requests_of(length) <= plans[1].requests_of(length)
    assert plans[1].num_blocks * layout.bytes_per_block <= available + more


@given(_cases(), LENGTHS, st.integers(0, 4096), FLIGHTS)
def test_longer_requests_need_no_less(
    case: tuple[ModelShape, KVSettings], length: int, longer: int, flight: int
) -> None:
    layout = _layout(case)
    assert layout.blocks_for(length, flight) <= layout.blocks_for(length + longer, flight)
    assert layout.blocks_for(length, flight) <= layout.blocks_for(length, flight + longer)
    assert layout.table_entries(length) <= layout.table_entries(length + longer)


@given(_cases(), LENGTHS, FLIGHTS)
def test_groups_hold_every_layer_and_sum_to_the_whole(
    case: tuple[ModelShape, KVSettings], length: int, flight: int
) -> None:
    shape = case[0]
    layout = _layout(case)
    assert sum(sum(group.layers) for group in layout.groups) == sum(one.layers for one in shape.text.kv_layers)
    assert sum(layout.blocks_per_group(length, flight)) == layout.blocks_for(length, flight)
    assert len(layout.blocks_per_group(length, flight)) == layout.group_count
    # Pages have one size in all groups, so that a block of the pool serves any of them.
    assert len({group.spec.page_bytes for group in layout.groups}) == 1
    assert max(group.block_bytes for group in layout.groups) == layout.bytes_per_block


@given(_cases(), LENGTHS, FLIGHTS, st.integers(0, 100 * GIB))
def test_the_longest_context_is_the_last_that_starts(
    case: tuple[ModelShape, KVSettings], limit: int, flight: int, available: int
) -> None:
    layout = _layout(case)
    longest = longest_context(layout, available, limit, flight)

    def starts(length: int) -> bool:
        return plan_kv_cache(
            layout, max_model_len=length, max_in_flight_tokens=flight, available_bytes=available
        ).starts

    assert longest == 0 or starts(longest)
    assert longest == limit or not starts(longest + 1)


@given(_cases(), st.integers(16_384, 262_144), FLIGHTS)
def test_a_request_holds_at_least_its_own_keys(case: tuple[ModelShape, KVSettings], length: int, flight: int) -> None:
    # Only where nothing is dropped: windows and states keep less than every token.
    shape, settings = case
    assume(all(not getattr(one, "reach", 0) and not isinstance(one, StateLayers) for one in shape.text.kv_layers))
    layout = _layout(case)
    keys = length * kv_bytes_per_token(shape, settings.tensor_parallel_size, settings.dtype)
    assert layout.blocks_for(length, flight) * layout.bytes_per_block >= keys


@given(_cases())
def test_eight_bits_take_no_more_than_sixteen_for_the_same_block(case: tuple[ModelShape, KVSettings]) -> None:
    shape, settings = case
    sizes = [kv_bytes_per_token(shape, settings.tensor_parallel_size, dtype) for dtype in ("fp8", "bfloat16")]
    assert 2 * sizes[0] == sizes[1]


@given(_cases())
def test_windows_kept_whole_need_no_less(case: tuple[ModelShape, KVSettings]) -> None:
    shape, settings = case
    assume(not any(isinstance(one, StateLayers) for one in shape.text.kv_layers))
    on, off = (kv_layout(shape, settings._replace(hybrid_manager=switch)) for switch in (True, False))
    length, flight = 262_144, 4096
    needed = [one.blocks_for(length, flight) * one.bytes_per_block for one in (on, off)]
    # Grouping pads the last group of each kind by less than its own size.
    assert needed[0] <= needed[1] * 1.5
