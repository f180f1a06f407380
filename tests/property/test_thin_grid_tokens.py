"""What holds for grids that treat thin images in their own way."""

from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.native_grid import GridShape, NativeGrid
from vlm_operator.sizing.tokens.thin_grid import ThinGrid, ThinShape, least_limit
from vlm_operator.sizing.tokens.types import ImageTokens, ServerSettings

SHIPPED = ServerSettings()
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))


@st.composite
def thin_grids(draw: st.DrawFn, *, largest_unit: int = 32) -> ThinGrid:
    unit = draw(st.integers(2, largest_unit))
    floor = draw(st.integers(1, 60 * unit**2))
    family = draw(st.sampled_from(["edge", "note", "kanana", "mimo"]))
    lift: Literal["none", "checked", "unchecked"] = "none"
    if family != "note":
        lift = "unchecked" if family == "mimo" else "checked"
    shape = ThinShape(unit, 2, floor, 0, lift=lift, keeps_unit=family in ("edge", "note"))
    most = least_limit(shape) + draw(st.integers(0, 300 * unit**2))
    shape = shape._replace(max_pixels=most, least_side=max(1, unit // 4) if family == "note" else 1)
    return ThinGrid(settings=SHIPPED, model_id="", shape=shape, budget_pixels=most, settable=family == "edge")


@given(thin_grids(largest_unit=3))
@settings(max_examples=25, deadline=None)
def test_no_size_takes_more_than_the_true_maximum(rule: ThinGrid) -> None:
    area = rule.shape.max_pixels * 5 // 4
    most = 0
    for height in range(1, area + 1):
        if height * height > area:
            break
        for width in range(height, area // height + 1):
            answer = rule.count_image(width, height)
            most = max(most, answer.embed_tokens if isinstance(answer, ImageTokens) else 0)
    assert most == rule.maximum().true_tokens


@given(thin_grids(), SIDES, SIDES)
@settings(max_examples=500, deadline=None)
def test_a_count_is_positive_and_never_above_the_true_maximum(rule: ThinGrid, width: int, height: int) -> None:
    answer = rule.count_image(width, height)
    maximum = rule.maximum()
    if isinstance(answer, ImageTokens):
        assert 0 < answer.embed_tokens <= maximum.true_tokens
        parts = rule.parts(answer)
        assert sum(part.count * part.tokens for part in parts) == answer.prompt_tokens
    attained = rule.count_image(*maximum.true_size)
    assert isinstance(attained, ImageTokens)
    assert attained.embed_tokens == maximum.true_tokens


@given(thin_grids(), SIDES, SIDES)
@settings(max_examples=500, deadline=None)
def test_only_images_with_a_side_below_one_unit_differ_from_qwens_rule(rule: ThinGrid, width: int, height: int) -> None:
    shape = rule.shape
    shared = GridShape(shape.unit, shape.merge_size, shape.min_pixels, shape.max_pixels)
    mine = rule.count_image(width, height)
    other = NativeGrid(settings=SHIPPED, model_id="", shape=shared).count_image(width, height)
    if min(width, height) < shape.unit or not isinstance(mine, ImageTokens):
        return
    assert isinstance(other, ImageTokens)
    assert (mine.embed_tokens, mine.resized) == (other.embed_tokens, other.resized)


@given(thin_grids(), SIDES, SIDES)
@settings(max_examples=300, deadline=None)
def test_turning_an_image_changes_nothing(rule: ThinGrid, width: int, height: int) -> None:
    upright, turned = rule.count_image(width, height), rule.count_image(height, width)
    assert type(upright) is type(turned)
    if isinstance(upright, ImageTokens) and isinstance(turned, ImageTokens):
        assert upright.embed_tokens == turned.embed_tokens
