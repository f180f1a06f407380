"""What holds for images brought within a number of tokens, whatever the shape; some have shapes no checkpoint has."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.aspect_grid import AspectGrid, AspectShape, fit_aspect
from vlm_operator.sizing.tokens.padded_canvas import CanvasShape, fit_canvas
from vlm_operator.sizing.tokens.row_ends import RowEnds, RowShape, count_grid
from vlm_operator.sizing.tokens.scaled_patches import PatchShape, ScaledPatches
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, ServerSettings
from vlm_operator.sizing.tokens.upscaled_patches import PatchesShape, UpscaledPatches

SHIPPED = ServerSettings()
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))


@st.composite
def row_shapes(draw: st.DrawFn) -> RowShape:
    return RowShape(
        patch_size=draw(st.integers(1, 3)),
        downsample=draw(st.integers(2, 4)),
        max_tokens=draw(st.integers(64, 150)),
        min_pixels=0,
        max_ratio=draw(st.sampled_from([None, 1, 1.5, 2.7, 8, 40.0])),
        paired=draw(st.booleans()),
    )


@given(row_shapes())
@settings(max_examples=6, deadline=None)
def test_no_size_has_more_row_tokens_than_the_true_maximum(shape: RowShape) -> None:
    rule = RowEnds(settings=SHIPPED, model_id="", shape=shape)
    most = rule.maximum().true_tokens
    for width in range(1, 100):
        for height in range(1, 100):
            answer = rule.count_image(width, height)
            assert not isinstance(answer, ImageTokens) or answer.embed_tokens <= most, (width, height)


@given(row_shapes(), SIDES, SIDES)
@settings(max_examples=500, deadline=None)
def test_an_image_with_its_rows_ends_and_padding_keeps_the_limit(shape: RowShape, width: int, height: int) -> None:
    answer = RowEnds(settings=SHIPPED, model_id="", shape=shape).count_image(width, height)
    if isinstance(answer, ImageTokens):
        assert answer.grid is not None
        assert count_grid(*answer.grid, paired=shape.paired) <= shape.limit
        assert answer.placeholder_length <= shape.max_tokens


@st.composite
def canvases(draw: st.DrawFn) -> CanvasShape:
    most = draw(st.integers(1, 300))
    least = draw(st.integers(1, most))
    return CanvasShape(unit=draw(st.integers(1, 30)), merge_size=2, expand=1, min_units=least, max_units=most)


@given(canvases(), st.integers(1, 900), st.integers(1, 900))
@settings(max_examples=1000, deadline=None)
def test_a_canvas_above_the_limit_is_that_of_the_highest_image_that_fits(
    shape: CanvasShape, width: int, height: int
) -> None:
    unit, grid = shape.unit, fit_canvas(width, height, shape)
    assert 1 <= grid[0] * grid[1] <= shape.max_units
    if math.ceil(width / unit) * math.ceil(height / unit) <= shape.max_units:
        return
    fitting = (1, 1)
    for high in range(1, height + 1):
        columns, rows = math.ceil(max(1, width * high // height) / unit), math.ceil(high / unit)
        if columns * rows <= shape.max_units:
            fitting = (columns, rows)
    assert grid == fitting


@st.composite
def aspect_shapes(draw: st.DrawFn) -> AspectShape:
    return AspectShape(
        unit=draw(st.integers(1, 30)), merge_size=2, max_tokens=draw(st.integers(1, 500)), strips=draw(st.booleans())
    )


@given(aspect_shapes(), SIDES, SIDES)
@settings(max_examples=800, deadline=None)
def test_a_grid_of_the_images_aspect_is_at_most_the_limit_or_refused(
    shape: AspectShape, width: int, height: int
) -> None:
    most, strips = shape.max_tokens, shape.strips
    rule = AspectGrid(settings=SHIPPED, model_id="", shape=shape, budget_tokens=most, settable=not strips)
    answer = rule.count_image(width, height)
    if isinstance(answer, ImageTokens):
        assert 1 <= answer.embed_tokens <= most
        assert answer.grid == fit_aspect(width, height, shape)
    else:
        assert not strips
        assert max(width, height) > most * min(width, height)
    attained = rule.count_image(*rule.maximum().true_size)
    assert isinstance(attained, ImageTokens)
    assert attained.embed_tokens == most


@st.composite
def patch_rules(draw: st.DrawFn) -> ImageRule:
    reaches_least, least = draw(st.booleans()), draw(st.integers(1, 80))
    merge_size = draw(st.integers(1, 3)) if reaches_least else 1
    most = 2 * (-(-least // merge_size**2) + 1) * merge_size**2 + draw(st.integers(0, 300))
    shape = PatchShape(
        unit=draw(st.integers(2, 20)) * merge_size,
        merge_size=merge_size,
        min_patches=least,
        max_patches=most,
        reaches_least=reaches_least,
    )
    return ScaledPatches(
        settings=SHIPPED, model_id="", shape=shape, budget_tokens=most, dummy=(100, 100), settable=True
    )


@given(patch_rules(), st.integers(1, 2_000), st.integers(1, 2_000))
@settings(max_examples=800, deadline=None)
def test_scaling_patches_ends_at_or_below_the_true_maximum_which_is_reached(
    rule: ImageRule, width: int, height: int
) -> None:
    maximum = rule.maximum()
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens)
    assert 1 <= answer.embed_tokens <= maximum.true_tokens
    attained = rule.count_image(*maximum.true_size)
    assert isinstance(attained, ImageTokens)
    assert attained.embed_tokens == maximum.true_tokens


@given(st.integers(2, 60), SIDES, SIDES)
@settings(max_examples=500, deadline=None)
def test_patches_over_an_enlarged_image_cover_it(patch_size: int, width: int, height: int) -> None:
    shape = PatchesShape(patch_size=patch_size, factor=2.0, long_edge=2048)
    rule = UpscaledPatches(settings=SHIPPED, model_id="", shape=shape, dummy=(patch_size, patch_size))
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens)
    assert answer.grid is not None
    assert answer.resized is not None
    for patches, side in zip(answer.grid, answer.resized, strict=True):
        assert patches * patch_size >= side
        assert (patches - 1) * patch_size <= side
    assert answer.resized[0] >= width
    assert answer.embed_tokens <= rule.maximum().true_tokens
