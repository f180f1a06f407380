"""What holds for every image and setting of a counting rule."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.caps import tightest_cap
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS
from vlm_operator.sizing.tokens.longest_edge import EdgeShape, LongestEdge
from vlm_operator.sizing.tokens.native_grid import MAX_ASPECT, GridShape, NativeGrid
from vlm_operator.sizing.tokens.pan_scan import PanScan, PanScanShape
from vlm_operator.sizing.tokens.slices import Slices, SliceShape
from vlm_operator.sizing.tokens.tiles import Tiles, TileShape
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, ServerSettings, TokenRefusal

SHIPPED = ServerSettings()
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))
SIZES = st.tuples(SIDES, SIDES)
LONG = st.tuples(st.integers(1, 120), st.integers(1, 200)).map(lambda pair: (pair[0], pair[0] * pair[1]))


@st.composite
def native_grids(draw: st.DrawFn) -> NativeGrid:
    unit = draw(st.sampled_from([28, 32]))
    least = draw(st.integers(1, 2_000_000))
    most = draw(st.integers(max(least, unit**2), 20_000_000))
    shape = GridShape(unit=unit, merge_size=2, min_pixels=least, max_pixels=most)
    return NativeGrid(settings=SHIPPED, model_id="", shape=shape)


@st.composite
def longest_edges(draw: st.DrawFn) -> LongestEdge:
    merge_size = draw(st.sampled_from([1, 2]))
    shape = EdgeShape(
        unit=draw(st.sampled_from([14, 16])) * merge_size,
        merge_size=merge_size,
        longest_edge=draw(st.integers(1, 4096)),
        rounding=draw(st.sampled_from(["floor", "nearest"])),
    )
    return LongestEdge(settings=SHIPPED, model_id="", shape=shape)


@st.composite
def pan_scans(draw: st.DrawFn) -> PanScan:
    shape = PanScanShape(
        tokens_per_view=256,
        patches_per_view=4096,
        enabled=draw(st.booleans()),
        max_crops=draw(st.integers(1, 12)),
        min_crop_size=draw(st.integers(1, 900)),
        min_ratio=draw(st.floats(1, 3)),
    )
    return PanScan(settings=SHIPPED, model_id="", image_size=896, shape=shape)


@st.composite
def tiles(draw: st.DrawFn) -> Tiles:
    least = draw(st.integers(1, 4))
    shape = TileShape(
        tile_size=448,
        tokens_per_tile=256,
        patches_per_tile=1024,
        min_tiles=least,
        max_tiles=draw(st.integers(least, 40)),
        thumbnail=draw(st.booleans()),
    )
    return Tiles(settings=SHIPPED, model_id="", shape=shape, lever="hf_overrides")


@st.composite
def slices(draw: st.DrawFn) -> Slices:
    shape = SliceShape(
        scale=448,
        patch_size=14,
        tokens_per_slice=64,
        max_slices=draw(st.integers(1, 40)),
        image_id=not (old := draw(st.booleans())),
        enclosed=old,
    )
    return Slices(settings=SHIPPED, model_id="", shape=shape, dummy_size=(448, 4032))


RULES = st.one_of(native_grids(), longest_edges(), pan_scans(), tiles(), slices())


@given(RULES, st.one_of(SIZES, LONG))
@settings(max_examples=600, deadline=None)
def test_a_count_is_positive_and_never_above_the_true_maximum(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    if not isinstance(answer, ImageTokens):
        return
    assert 0 < answer.embed_tokens <= rule.maximum().true_tokens
    assert answer.embed_tokens <= answer.placeholder_length <= answer.prompt_tokens
    assert answer.vit_patches > 0


@given(RULES)
@settings(max_examples=200, deadline=None)
def test_the_dummy_image_is_below_the_true_maximum(rule: ImageRule) -> None:
    maximum = rule.maximum()
    assert 0 < maximum.dummy_tokens <= maximum.true_tokens
    if maximum.dummy_size[0] * maximum.dummy_size[1] <= MAX_DECODED_PIXELS:
        answer = rule.count_image(*maximum.dummy_size)
        assert isinstance(answer, ImageTokens)
        assert (answer.embed_tokens, answer.vit_patches) == (maximum.dummy_tokens, maximum.dummy_patches)


@given(st.one_of(native_grids(), longest_edges(), pan_scans()), st.one_of(SIZES, LONG))
@settings(max_examples=300, deadline=None)
def test_turning_an_image_changes_nothing(rule: ImageRule, size: tuple[int, int]) -> None:
    upright, turned = rule.count_image(*size), rule.count_image(size[1], size[0])
    assert type(upright) is type(turned)
    if isinstance(upright, ImageTokens) and isinstance(turned, ImageTokens):
        assert upright.embed_tokens == turned.embed_tokens
        assert upright.vit_patches == turned.vit_patches


@given(native_grids(), SIZES, st.integers(0, 5_000_000))
@settings(max_examples=300, deadline=None)
def test_more_pixels_allowed_is_never_fewer_tokens(rule: NativeGrid, size: tuple[int, int], more: int) -> None:
    # Below this limit a long image's short side is held at one unit, and a larger limit can mean fewer tokens.
    limit = max(rule.shape.max_pixels, MAX_ASPECT * rule.shape.unit**2)
    low = rule.with_cap(limit).count_image(*size)
    high = rule.with_cap(limit + more).count_image(*size)
    if isinstance(low, ImageTokens) and isinstance(high, ImageTokens):
        assert low.embed_tokens <= high.embed_tokens


@given(longest_edges(), SIZES, st.integers(0, 500))
@settings(max_examples=300, deadline=None)
def test_a_longer_edge_is_never_fewer_tokens(rule: LongestEdge, size: tuple[int, int], more: int) -> None:
    low = rule.count_image(*size)
    high = rule.with_cap(rule.shape.longest_edge + more).count_image(*size)
    if isinstance(low, TokenRefusal):  # nothing is left of a short side
        assert low.reason == "AspectRatioTooExtreme"
        return
    assert isinstance(high, ImageTokens)
    assert low.embed_tokens <= high.embed_tokens


@given(
    st.one_of(native_grids(), longest_edges(), tiles(), slices()),
    st.lists(SIZES, max_size=5),
    st.integers(1, 4_000_000),
)
@settings(max_examples=150, deadline=None)
def test_the_tightest_cap_keeps_the_pixels_asked_for(
    rule: ImageRule, sizes: list[tuple[int, int]], min_pixels: int
) -> None:
    capped = tightest_cap(rule, sizes, min_pixels=min_pixels)
    assert capped is not None
    for size in sizes:
        if isinstance(rule.count_image(*size), ImageTokens):
            assert capped.kept_pixels(*size) >= min(rule.kept_pixels(*size), min_pixels)


@given(RULES, st.one_of(SIZES, LONG))
@settings(max_examples=300, deadline=None)
def test_the_parts_sum_to_the_whole(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    if isinstance(answer, ImageTokens):
        parts = rule.parts(answer)
        assert sum(part.count * part.tokens for part in parts) == answer.prompt_tokens
        assert sum(part.count * part.tokens for part in parts if part.embedded) == answer.embed_tokens
        assert all(part.count >= 0 for part in parts)
