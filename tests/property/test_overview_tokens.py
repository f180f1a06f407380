"""Laws of the rules that give an overview and a grid, for shapes that no checkpoint has."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.base_view import BaseView, BaseViewShape, SwitchedBaseView
from vlm_operator.sizing.tokens.canvases import list_canvases
from vlm_operator.sizing.tokens.clamped_grid import ClampedGrid, ClampedGridShape
from vlm_operator.sizing.tokens.covering import Covering, CoveringShape
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS
from vlm_operator.sizing.tokens.overlap_crops import CropShape, OverlapCrops
from vlm_operator.sizing.tokens.sized_slices import SizedSlices, SizedSliceShape
from vlm_operator.sizing.tokens.tile_grids import grid_aspects, grids
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, ServerSettings
from vlm_operator.sizing.tokens.windows import Windows, WindowShape
from vlm_operator.units import ceil_div

SHIPPED = ServerSettings()
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))
SIZES = st.one_of(
    st.tuples(SIDES, SIDES),
    st.tuples(st.integers(1, 60), st.integers(1, 300)).map(lambda pair: (pair[0] * pair[1], pair[0])),
    st.tuples(st.integers(1, 60), st.integers(1, 300)).map(lambda pair: (pair[0], pair[0] * pair[1])),
)


@st.composite
def base_views(draw: st.DrawFn) -> BaseView:
    tile_size = draw(st.sampled_from([384, 640, 768]))
    by_pixels, most = draw(st.booleans()), draw(st.integers(2, 40))
    shape = BaseViewShape(
        base_size=tile_size if by_pixels else 1024,
        tile_size=tile_size,
        base_side=14,
        tile_side=10,
        row_end=draw(st.integers(0, 1)),
        base_patches=729,
        tile_patches=400,
        grids=list_canvases(grids(1, most), tile_size) if by_pixels else grid_aspects(tile_size, 2, most),
        always_cut=by_pixels,
    )
    size = (2 * tile_size, 2 * tile_size)
    if by_pixels:
        return BaseView(settings=SHIPPED, model_id="", shape=shape, dummy_size=size)
    return SwitchedBaseView(settings=SHIPPED, model_id="", shape=shape, dummy_size=size)


@st.composite
def coverings(draw: st.DrawFn) -> Covering:
    shape = CoveringShape(
        tile_size=draw(st.sampled_from([224, 448])),
        tokens_per_tile=256,
        patches_per_tile=1024,
        max_tiles=draw(st.integers(1, 20)),
        threshold=draw(st.floats(0.3, 1.2)),
    )
    return Covering(settings=SHIPPED, model_id="", shape=shape, hidden_stride=2)


@st.composite
def overlap_crops(draw: st.DrawFn) -> OverlapCrops:
    crops, window, margin = draw(st.integers(1, 30)), draw(st.integers(1, 30)), draw(st.integers(2, 12))
    along = tuple(ceil_div(n * window + margin, 2) for n in range(1, crops + 1))
    shape = CropShape(
        max_crops=crops,
        window=window * 14,
        margin=margin * 14,
        columns_along=along,
        rows_along=along,
        overview=(12, 12),
        overview_row_end=draw(st.integers(0, 1)),
        row_end=draw(st.integers(0, 1)),
        embeds_marks=draw(st.booleans()),
        patches_per_crop=(window + margin) ** 2,
    )
    return OverlapCrops(
        settings=SHIPPED, model_id="", shape=shape, dummy_unit=window * 14, dummy_margin=draw(st.sampled_from([0, 14]))
    )


@st.composite
def sized_slices(draw: st.DrawFn) -> SizedSlices:
    shape = SizedSliceShape(
        scale=448,
        unit=draw(st.sampled_from([56, 64])),
        tokens_per_unit=draw(st.sampled_from([1, 4])),
        max_slices=draw(st.integers(1, 40)),
    )
    slices = draw(st.sampled_from([None, 9]))
    return SizedSlices(settings=SHIPPED, model_id="", shape=shape, dummy_side=448, dummy_slices=slices)


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    return Windows(settings=SHIPPED, model_id="", shape=WindowShape(patch_size=14, windows=draw(st.booleans())))


@st.composite
def clamped_grids(draw: st.DrawFn) -> ClampedGrid:
    patch, stride = draw(st.integers(4, 32)), draw(st.integers(1, 4))
    shape = ClampedGridShape(unit=patch * stride, hidden_stride=stride, temporal_patch_size=draw(st.integers(1, 2)))
    return ClampedGrid(settings=SHIPPED, model_id="", shape=shape)


RULES = st.one_of(base_views(), coverings(), overlap_crops(), sized_slices(), windows(), clamped_grids())


@given(RULES, SIZES)
@settings(max_examples=1200, deadline=None)
def test_a_count_is_positive_and_never_above_the_true_maximum(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    assert 0 < answer.embed_tokens <= rule.maximum().true_tokens
    assert answer.embed_tokens <= answer.placeholder_length == answer.prompt_tokens
    assert answer.vit_patches > 0


@given(RULES)
@settings(max_examples=300, deadline=None)
def test_the_largest_image_takes_the_true_maximum(rule: ImageRule) -> None:
    maximum = rule.maximum()
    width, height = maximum.true_size
    assume(width * height <= MAX_DECODED_PIXELS)
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens)
    assert answer.embed_tokens == maximum.true_tokens
    assert maximum.dummy_tokens <= maximum.true_tokens


@given(RULES, SIZES)
@settings(max_examples=600, deadline=None)
def test_the_parts_sum_to_the_whole(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    parts = rule.parts(answer)
    assert sum(part.count * part.tokens for part in parts) == answer.prompt_tokens
    assert sum(part.count * part.tokens for part in parts if part.embedded) == answer.embed_tokens
    assert all(part.count >= 0 and part.tokens >= 0 for part in parts)


@given(coverings(), SIZES, st.integers(1, 10))
@settings(max_examples=400, deadline=None)
def test_more_tiles_allowed_never_cover_less_of_an_image(rule: Covering, size: tuple[int, int], more: int) -> None:
    wider = rule.with_cap(rule.shape.max_tiles + more)
    assert wider.kept_pixels(*size) >= rule.kept_pixels(*size)


@given(coverings(), SIZES)
@settings(max_examples=400, deadline=None)
def test_tiles_never_cover_more_than_the_image_or_their_own_area(rule: Covering, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    assert answer.grid is not None
    columns, rows = answer.grid
    assert rule.kept_pixels(*size) <= min(size[0] * size[1], columns * rows * rule.shape.tile_size**2)


@given(overlap_crops(), SIZES)
@settings(max_examples=400, deadline=None)
def test_an_image_that_fits_the_crops_is_never_shrunk(rule: OverlapCrops, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assert isinstance(answer, ImageTokens)
    assert answer.grid is not None
    shape = rule.shape
    needed = [max(1, ceil_div(side - shape.margin, shape.window)) for side in size]
    if min(size) < shape.margin:
        # The engine takes a negative scale for one that shrinks.
        assert answer.grid == (1, 1)
    elif needed[0] * needed[1] <= shape.max_crops:
        assert answer.grid == tuple(needed)
    else:
        assert answer.grid[0] * answer.grid[1] <= shape.max_crops


@given(windows(), SIZES)
@settings(max_examples=400, deadline=None)
def test_turning_an_image_turns_its_windows(rule: Windows, size: tuple[int, int]) -> None:
    upright, turned = rule.count_image(*size), rule.count_image(size[1], size[0])
    assert isinstance(upright, ImageTokens) == isinstance(turned, ImageTokens)
    if isinstance(upright, ImageTokens) and isinstance(turned, ImageTokens):
        assert upright.embed_tokens == turned.embed_tokens
        assert upright.grid == (turned.grid or (0, 0))[::-1]
