"""Laws of the rules that fit an image into canvases or under a number of tiles, for shapes that no checkpoint has."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.anyres import Anyres, AnyresShape, measure
from vlm_operator.sizing.tokens.canvases import list_canvases
from vlm_operator.sizing.tokens.phi_dynamic_hd import DynamicHd
from vlm_operator.sizing.tokens.phi_hd_transform import HdTransform
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, ServerSettings

SHIPPED = ServerSettings()
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))
SIZES = st.one_of(
    st.tuples(SIDES, SIDES),
    st.tuples(st.integers(1, 60), st.integers(1, 300)).map(lambda pair: (pair[0] * pair[1], pair[0])),
    st.tuples(st.integers(1, 60), st.integers(1, 300)).map(lambda pair: (pair[0], pair[0] * pair[1])),
)
GRIDS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)
LIMITS = st.one_of(st.none(), st.integers(1, 12))


def shape_of(tile_size: int, tile_tokens: int, grids: list[tuple[int, int]], *limits: int | None) -> AnyresShape:
    canvases = list_canvases(tuple(grids), tile_size)
    return AnyresShape(tile_size, tile_tokens, tile_tokens**2, tile_tokens**2, canvases, *limits)


@st.composite
def anyres(draw: st.DrawFn) -> Anyres:
    tile_size, tile_tokens = draw(st.sampled_from([(336, 24), (384, 27), (384, 12), (224, 16)]))
    counted = draw(LIMITS)
    shape = shape_of(tile_size, tile_tokens, draw(GRIDS), counted, draw(st.sampled_from([counted, 9])))
    columns, rows = shape.canvases.grids[-1]
    return Anyres(settings=SHIPPED, model_id="", shape=shape, dummy_size=(columns * tile_size, rows * tile_size))


RULES: st.SearchStrategy[ImageRule] = st.one_of(
    anyres(),
    st.builds(DynamicHd, settings=st.just(SHIPPED), model_id=st.just(""), max_tiles=st.integers(1, 60)),
    st.builds(HdTransform, settings=st.just(SHIPPED), model_id=st.just(""), max_tiles=st.integers(1, 200)),
)


@given(RULES, SIZES)
@settings(max_examples=600, deadline=None)
def test_no_image_has_more_tokens_than_the_largest(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    assert 0 < answer.embed_tokens <= rule.maximum().true_tokens
    assert answer.vit_patches > 0


@given(RULES)
@settings(max_examples=200, deadline=None)
def test_the_largest_image_has_the_most_tokens(rule: ImageRule) -> None:
    maximum = rule.maximum()
    answer = rule.count_image(*maximum.true_size)
    assert isinstance(answer, ImageTokens)
    assert answer.embed_tokens == maximum.true_tokens


@given(
    st.sampled_from([(6, 2), (8, 3), (9, 4), (10, 5)]),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=6),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from([None, 2]),
)
@settings(max_examples=30, deadline=None)
def test_the_largest_image_is_found_among_all_sizes(
    tile: tuple[int, int], grids: list[tuple[int, int]], counted: int | None, model: int | None
) -> None:
    shape = shape_of(*tile, grids, counted, model)
    rule = Anyres(settings=SHIPPED, model_id="", shape=shape, dummy_size=(1, 1))
    sides = range(1, 3 * tile[0] * 2)
    answers = (rule.count_image(width, height) for width in sides for height in sides)
    most = max(answer.embed_tokens for answer in answers if isinstance(answer, ImageTokens))
    assert rule.maximum().true_tokens == most


@given(GRIDS, SIZES)
@settings(max_examples=300, deadline=None)
def test_the_canvas_keeps_most_pixels_and_is_the_first_of_the_smallest(
    grids: list[tuple[int, int]], size: tuple[int, int]
) -> None:
    width, height = size

    def kept(grid: tuple[int, int]) -> int:
        scale = min(grid[0] * 384 / width, grid[1] * 384 / height)
        return min(int(width * scale) * int(height * scale), width * height)

    best = max(grids, key=lambda grid: (kept(grid), -grid[0] * grid[1]))
    assert measure(width, height, shape_of(384, 27, grids)).grid == best


@given(anyres(), st.integers(1, 2000), st.integers(1, 2000))
@settings(max_examples=200, deadline=None)
def test_an_image_shrunk_before_it_is_sent_takes_no_more_tiles(rule: Anyres, width: int, height: int) -> None:
    whole, half = (measure(side * width, side * height, rule.shape) for side in (2, 1))
    assert (half.tiles or 0) <= (whole.tiles or 0)


@given(st.integers(1, 60), st.integers(1, 60), SIZES)
@settings(max_examples=300, deadline=None)
def test_more_tiles_never_keep_fewer_pixels_of_an_image_under_the_hd_transform(
    few: int, more: int, size: tuple[int, int]
) -> None:
    low, high = (HdTransform(settings=SHIPPED, model_id="", max_tiles=tiles) for tiles in sorted((few, more)))
    assert low.kept_pixels(*size) <= high.kept_pixels(*size)


@given(RULES, SIZES)
@settings(max_examples=300, deadline=None)
def test_the_parts_sum_to_the_whole(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    parts = rule.parts(answer)
    assert sum(part.count * part.tokens for part in parts) == answer.prompt_tokens == answer.embed_tokens
    assert all(part.count >= 0 and part.tokens >= 0 for part in parts)
