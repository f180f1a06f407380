"""Laws of the rules that cut square tiles, and of the one that keeps an image whole within a patch budget."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings
from vlm_operator.sizing.tokens.caps import tightest_cap
from vlm_operator.sizing.tokens.edge_tiles import EdgeTiles, EdgeTileShape
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS
from vlm_operator.sizing.tokens.tile_grids import Choice, choose_grid, grids
from vlm_operator.sizing.tokens.tiles import (
    CanvasTiles,
    CrossAttentionTiles,
    ListedTiles,
    Tiles,
    TileShape,
    column,
    first_grid,
    largest_grid,
    largest_listed_grid,
)
from vlm_operator.sizing.tokens.tiles_nemotron import DynamicResolution, PatchBudget
from vlm_operator.sizing.tokens.tiles_twice import TilesTwice

SHIPPED = ServerSettings()
CHOICES: tuple[Choice, ...] = ("single", "closest", "coverage", "fit", "fit_float32", "largest_fit_float32")
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))
SIZES = st.one_of(
    st.tuples(SIDES, SIDES),
    st.tuples(st.integers(1, 60), st.integers(1, 300)).map(lambda pair: (pair[0] * pair[1], pair[0])),
    st.tuples(st.integers(1, 24), st.integers(1, 24), st.integers(1, 500)).map(
        lambda three: (three[0] * three[2], three[1] * three[2])
    ),
)


@st.composite
def shapes(draw: st.DrawFn, choices: tuple[Choice, ...] = CHOICES, most: int = 40) -> TileShape:
    choice = draw(st.sampled_from(choices))
    least = draw(st.integers(1, 4)) if choice in ("closest", "coverage") else 1
    return TileShape(
        tile_size=draw(st.sampled_from([336, 364, 448, 512, 560])),
        tokens_per_tile=144,
        patches_per_tile=576,
        min_tiles=least,
        max_tiles=draw(st.integers(least, most)),
        thumbnail=draw(st.booleans()),
        choice=choice,
        tags_per_view=draw(st.integers(0, 1)),
    )


@st.composite
def cut_once(draw: st.DrawFn) -> Tiles:
    kind = draw(st.sampled_from([Tiles, ListedTiles, CanvasTiles]))
    dummy = draw(st.sampled_from([largest_grid, largest_listed_grid, column, first_grid]))
    return kind(settings=SHIPPED, model_id="", shape=draw(shapes()), dummy_grid=dummy)


@st.composite
def cut_twice(draw: st.DrawFn) -> TilesTwice:
    return TilesTwice(settings=SHIPPED, model_id="", shape=draw(shapes(choices=("closest",), most=10)))


@st.composite
def edge_tiles(draw: st.DrawFn) -> EdgeTiles:
    tile_size = draw(st.sampled_from([364, 384, 512]))
    shape = EdgeTileShape(
        longest_edge=tile_size * draw(st.integers(1, 6)),
        tile_size=tile_size,
        tokens_per_tile=81,
        patches_per_tile=729,
        cuts=draw(st.booleans()),
    )
    return EdgeTiles(settings=SHIPPED, model_id="", shape=shape)


@st.composite
def budgets(draw: st.DrawFn) -> DynamicResolution:
    least = draw(st.integers(4, 2000))
    shape = PatchBudget(
        patch_size=draw(st.sampled_from([14, 16])),
        min_patches=least,
        max_patches=draw(st.one_of(st.none(), st.integers(least, 20_000))),
        context=draw(st.integers(10_000, 131_072)),
    )
    return DynamicResolution(settings=SHIPPED, model_id="", shape=shape)


RULES = st.one_of(cut_once(), cut_twice(), edge_tiles(), budgets())


@given(RULES, SIZES)
@settings(max_examples=800, deadline=None)
def test_a_count_is_positive_and_never_above_the_true_maximum(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    assert 0 < answer.embed_tokens <= rule.maximum().true_tokens
    assert answer.embed_tokens < answer.placeholder_length == answer.prompt_tokens
    assert answer.vit_patches > 0


@given(RULES)
@settings(max_examples=300, deadline=None)
def test_the_largest_image_and_the_dummy_are_counted_like_any_other(rule: ImageRule) -> None:
    maximum = rule.maximum()
    for size, tokens in ((maximum.true_size, maximum.true_tokens), (maximum.dummy_size, maximum.dummy_tokens)):
        if size[0] * size[1] <= MAX_DECODED_PIXELS:
            answer = rule.count_image(*size)
            assert isinstance(answer, ImageTokens)
            assert answer.embed_tokens == tokens


@given(RULES, SIZES)
@settings(max_examples=500, deadline=None)
def test_the_parts_sum_to_the_whole(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    parts = rule.parts(answer)
    assert sum(part.count * part.tokens for part in parts) == answer.prompt_tokens
    assert sum(part.count * part.tokens for part in parts if part.embedded) == answer.embed_tokens
    assert all(part.count >= 0 for part in parts)


@given(shapes(), SIZES)
@settings(max_examples=500, deadline=None)
def test_a_grid_has_the_tiles_that_the_limits_allow(shape: TileShape, size: tuple[int, int]) -> None:
    columns, rows = choose_grid(shape.choice, *size, shape.tile_size, shape.min_tiles, shape.max_tiles)
    assert (columns, rows) == (1, 1) or (columns, rows) in grids(shape.min_tiles, shape.max_tiles)
    assert columns * rows <= shape.max_tiles


@given(shapes(choices=("fit", "fit_float32")), SIZES)
@settings(max_examples=500, deadline=None)
def test_a_canvas_holds_the_image_unless_none_can(shape: TileShape, size: tuple[int, int]) -> None:
    def holds(grid: tuple[int, int]) -> bool:
        return grid[0] * shape.tile_size >= size[0] and grid[1] * shape.tile_size >= size[1]

    chosen = choose_grid(shape.choice, *size, shape.tile_size, 1, shape.max_tiles)
    # Single precision takes a canvas for large enough that is too small by less than a pixel in 10 million.
    if shape.choice == "fit":
        assert holds(chosen) == any(holds(grid) for grid in grids(1, shape.max_tiles))
    elif any(holds(grid) for grid in grids(1, shape.max_tiles)):
        assert holds(chosen)


@given(shapes(choices=("fit", "fit_float32", "largest_fit_float32")), SIZES)
@settings(max_examples=300, deadline=None)
def test_turning_an_image_turns_its_canvas(shape: TileShape, size: tuple[int, int]) -> None:
    rule = CanvasTiles(settings=SHIPPED, model_id="", shape=shape)
    upright, turned = rule.count_image(*size), rule.count_image(size[1], size[0])
    assert isinstance(upright, ImageTokens)
    assert isinstance(turned, ImageTokens)
    assert upright.embed_tokens == turned.embed_tokens


def test_the_closest_grid_does_not_turn_with_the_image() -> None:
    # Aspects are compared as they are, so that wide images are told apart better than tall ones.
    assert choose_grid("closest", 580, 400, 448, 1, 6) == (3, 2)
    assert choose_grid("closest", 400, 580, 448, 1, 6) == (2, 3)
    assert choose_grid("closest", 4800, 1000, 448, 1, 6) == (5, 1)
    assert choose_grid("closest", 1000, 4800, 448, 1, 6) == (1, 5)
    assert choose_grid("closest", 5460, 1000, 448, 1, 6) == (5, 1)
    assert choose_grid("closest", 1000, 5460, 448, 1, 6) == (1, 6)


@given(shapes(choices=("fit_float32", "largest_fit_float32")), SIZES)
@settings(max_examples=300, deadline=None)
def test_cross_attention_and_canvas_cut_alike(shape: TileShape, size: tuple[int, int]) -> None:
    canvas = CanvasTiles(settings=SHIPPED, model_id="", shape=shape).count_image(*size)
    outside = CrossAttentionTiles(settings=SHIPPED, model_id="", shape=shape).count_image(*size)
    assert isinstance(canvas, ImageTokens)
    assert outside == canvas._replace(placeholder_length=1, prompt_tokens=1)


@given(edge_tiles(), SIZES)
@settings(max_examples=500, deadline=None)
def test_a_longer_edge_is_never_fewer_tokens_or_pixels(rule: EdgeTiles, size: tuple[int, int]) -> None:
    assert rule.cap is not None
    counts = [rule.with_cap(value).count_image(*size) for value in rule.cap.tighter]
    embeds = [answer.embed_tokens for answer in counts if isinstance(answer, ImageTokens)]
    assert len(embeds) == len(counts)
    assert embeds == sorted(embeds)
    kept = [rule.with_cap(value).kept_pixels(*size) for value in rule.cap.tighter]
    assert kept == sorted(kept)


@given(st.one_of(cut_once(), cut_twice(), edge_tiles()), st.lists(SIZES, max_size=4), st.integers(1, 4_000_000))
@settings(max_examples=200, deadline=None)
def test_the_tightest_cap_keeps_the_pixels_asked_for(
    rule: ImageRule, sizes: list[tuple[int, int]], min_pixels: int
) -> None:
    capped = tightest_cap(rule, sizes, min_pixels=min_pixels)
    assert capped is not None
    for size in sizes:
        if isinstance(rule.count_image(*size), ImageTokens):
            assert capped.kept_pixels(*size) >= min(rule.kept_pixels(*size), min_pixels)


@given(budgets(), SIZES)
@settings(max_examples=500, deadline=None)
def test_an_image_within_the_budget_keeps_its_pixels(rule: DynamicResolution, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    assert answer.resized is not None
    assert answer.vit_patches % 4 == 0
    patches = (size[0] // rule.shape.patch_size + 2) * (size[1] // rule.shape.patch_size + 2)
    if patches <= rule.shape.budget:
        # One patch may be missing where a side is made even downwards.
        assert all(new > old - rule.shape.patch_size for new, old in zip(answer.resized, size, strict=True))
