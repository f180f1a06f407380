"""The choice among grids tries only those that can win; it is the one of trying them all in the engine's order."""

from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.aspects import list_aspects
from vlm_operator.sizing.tokens.canvases import list_canvases
from vlm_operator.sizing.tokens.tile_grids import grids, tightest_grid

Grid = tuple[int, int]

TILES = st.sampled_from([14, 224, 336, 384, 448, 512])
SIDES = st.one_of(st.integers(1, 600), st.integers(1, 12_000))
MULTIPLES = st.tuples(st.integers(1, 14), st.integers(1, 14), st.integers(1, 700))
SIZES = st.one_of(
    st.tuples(SIDES, SIDES),
    MULTIPLES.map(lambda drawn: (drawn[0] * drawn[2], drawn[1] * drawn[2])),
    st.tuples(st.integers(1, 178_956_970), st.just(1)),
    st.tuples(st.just(1), st.integers(1, 178_956_970)),
)
LISTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40)


@given(SIZES, TILES, LISTS)
@example((800, 600), 448, list(grids(1, 12)))
def test_the_closest_aspect_is_that_of_trying_every_grid(size: Grid, tile: int, listed: list[Grid]) -> None:
    best, nearest = (1, 1), float("inf")
    for columns, rows in listed:
        distance = abs(size[0] / size[1] - columns / rows)
        if distance < nearest:
            best, nearest = (columns, rows), distance
        elif distance == nearest and size[0] * size[1] > 0.5 * tile * tile * columns * rows:
            best = (columns, rows)
    assert list_aspects(tuple(listed), tile).choose(*size) == best


@given(SIZES, TILES, LISTS)
def test_the_canvas_that_keeps_most_is_that_of_trying_every_canvas(size: Grid, tile: int, listed: list[Grid]) -> None:
    best, most, least_waste = listed[0], 0, float("inf")
    for columns, rows in listed:
        scale = min(columns * tile / size[0], rows * tile / size[1])
        kept = min(int(size[0] * scale) * int(size[1] * scale), size[0] * size[1])
        waste = columns * rows * tile * tile - kept
        if kept > most or (kept == most and waste < least_waste):
            best, most, least_waste = (columns, rows), kept, waste
    assert list_canvases(tuple(listed), tile).choose(*size) == best


@given(SIZES, TILES, st.integers(1, 40), st.sampled_from(["double", "single", "largest"]))
def test_the_tightest_grid_is_that_of_trying_every_grid(size: Grid, tile: int, most: int, way: str) -> None:
    listed = grids(1, most)
    kind = "d" if way == "double" else "f"
    scales = array(kind, [min(across * tile / size[0], down * tile / size[1]) for across, down in listed])
    enough = [scale for scale in scales if scale >= 1]
    wanted = min(enough) if enough and way != "largest" else max(scales)
    found = tightest_grid(*size, tile, most, single=way != "double", largest=way == "largest")
    assert found == listed[scales.index(wanted)]
