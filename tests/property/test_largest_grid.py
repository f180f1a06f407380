"""The largest image of a native-resolution grid against every size there is, for small limits."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.largest_grid import Limits, largest_image
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.native_grid import MAX_ASPECT, GridShape, NativeGrid, fit_grid
from vlm_operator.sizing.tokens.types import ImageTokens, ServerSettings


@st.composite
def small_limits(draw: st.DrawFn) -> Limits:
    unit = draw(st.integers(1, 9))
    area = draw(st.integers(1, 2500))
    floor = draw(st.integers(1, area))
    most = draw(st.one_of(st.integers(1, 3000), st.integers(floor, floor + 3000)))
    return Limits(unit, floor, most, draw(st.integers(1, 12)), area)


def count_of(limits: Limits, width: int, height: int) -> int:
    shape = GridShape(unit=limits.unit, merge_size=1, min_pixels=limits.min_pixels, max_pixels=limits.max_pixels)
    columns, rows = fit_grid(width, height, shape)
    return columns * rows


def most_of_all_sizes(limits: Limits) -> int:
    return max(
        count_of(limits, width, height)
        for height in range(1, limits.max_area + 1)
        for width in range(height, min(limits.max_area // height, limits.max_aspect * height) + 1)
    )


@given(small_limits())
@example(Limits(unit=28, min_pixels=3136, max_pixels=3136, max_aspect=200, max_area=9000))
@settings(max_examples=400, deadline=None)
def test_the_largest_image_is_that_of_a_search_through_all_sizes(limits: Limits) -> None:
    def count(width: int, height: int) -> int:
        return count_of(limits, width, height)

    tokens, (width, height) = largest_image(limits, count)
    assert tokens == most_of_all_sizes(limits)
    assert width * height <= limits.max_area
    assert width <= limits.max_aspect * height
    assert count(width, height) == tokens


@given(st.sampled_from([28, 32]), st.integers(1, 178_956_970), st.integers(1, 10**9))
@settings(max_examples=100, deadline=None)
def test_the_true_maximum_is_taken_by_its_size(unit: int, min_pixels: int, max_pixels: int) -> None:
    shape = GridShape(unit=unit, merge_size=2, min_pixels=min_pixels, max_pixels=max_pixels)
    rule = NativeGrid(settings=ServerSettings(), model_id="", shape=shape)
    maximum = rule.maximum()
    answer = rule.count_image(*maximum.true_size)
    assert isinstance(answer, ImageTokens)
    assert answer.embed_tokens == maximum.true_tokens
    dummy = maximum.dummy_size
    if check_size(*dummy) is None and max(dummy) <= MAX_ASPECT * min(dummy):
        assert maximum.true_tokens >= maximum.dummy_tokens
