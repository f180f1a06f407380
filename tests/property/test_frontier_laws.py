"""Laws of the Pareto frontier: nothing on it is beaten, and everything off it is."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import make_flags, make_gpu, make_latency, make_plan, make_tokens
from vlm_operator.sizing.frontier import find_frontier, kept_pixels, undominated
from vlm_operator.sizing.plan import Percentiles, Plan
from vlm_operator.sizing.workload import LatencyTarget

TARGET = LatencyTarget(metric="ttft", percentile=95, seconds=1.0)
FIGURES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=40)


def at_least_as_good(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1]


@given(FIGURES)
def test_no_point_of_the_frontier_is_beaten_by_any_other(points: list[tuple[int, int]]) -> None:
    for found in undominated(points, lambda point: point):
        assert not any(at_least_as_good(other, found) and other != found for other in points)


@given(FIGURES)
def test_whatever_is_off_the_frontier_is_beaten_or_equalled_by_a_point_on_it(points: list[tuple[int, int]]) -> None:
    front = undominated(points, lambda point: point)
    assert all(any(at_least_as_good(found, point) for found in front) for point in points)


@given(FIGURES)
def test_along_the_frontier_one_figure_rises_and_the_other_falls(points: list[tuple[int, int]]) -> None:
    front = undominated(points, lambda point: point)
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(front))


@given(FIGURES)
def test_the_order_in_which_plans_are_found_changes_no_figure_of_the_frontier(points: list[tuple[int, int]]) -> None:
    assert undominated(points, lambda point: point) == undominated(points[::-1], lambda point: point)


def a_plan(cents: float | None, ttft_p95: float, pixels: int | None, name: str = "gpu") -> Plan:
    image = replace(make_tokens().images[0], kept_pixels=pixels)
    latency = replace(make_latency(), ttft=Percentiles(p50=ttft_p95 / 2, p95=ttft_p95, p99=ttft_p95 * 2))
    return make_plan(
        gpu=make_gpu(id=name),
        hourly_cents=cents,
        latency=latency,
        tokens=make_tokens(images=(image,)),
        flags=make_flags(),
    )


@st.composite
def plans(draw: st.DrawFn) -> list[Plan]:
    cents = st.one_of(st.none(), st.integers(1, 6).map(lambda n: n * 100.0))
    figures = st.lists(st.tuples(cents, st.integers(1, 8), st.integers(1, 6)), max_size=12)
    return [a_plan(c, s / 4, n * 1000, f"gpu{at}") for at, (c, s, n) in enumerate(draw(figures))]


@given(plans())
def test_a_plan_without_a_price_is_never_on_the_frontier(found: list[Plan]) -> None:
    frontier = find_frontier(found, [TARGET])
    assert all(plan.hourly_cents is not None for plan in (*frontier.cost_latency, *frontier.cost_pixels))


@given(plans())
def test_more_pixels_are_bought_only_from_plans_that_keep_the_target(found: list[Plan]) -> None:
    assert all(plan.latency.ttft.p95 <= 1.0 for plan in find_frontier(found, [TARGET]).cost_pixels)


@given(plans(), st.integers(1, 6))
def test_less_latency_is_never_bought_with_fewer_pixels_than_declared(found: list[Plan], least: int) -> None:
    front = find_frontier(found, [TARGET], least * 1000.0).cost_latency
    assert all((kept_pixels(plan) or 0) >= least * 1000 for plan in front)
    enough = [plan for plan in found if plan.hourly_cents is not None and (kept_pixels(plan) or 0) >= least * 1000]
    assert bool(front) == bool(enough)


def test_the_first_declared_target_says_which_latency_is_compared() -> None:
    quick_start = replace(
        a_plan(100.0, 0.1, 1000), latency=replace(a_plan(1.0, 0.1, 1).latency, tpot=Percentiles(p50=1, p95=1, p99=1))
    )
    quick_words = replace(
        a_plan(100.0, 0.9, 1000),
        latency=replace(a_plan(1.0, 0.9, 1).latency, tpot=Percentiles(p50=0.01, p95=0.01, p99=0.01)),
    )
    tpot = LatencyTarget(metric="tpot", percentile=50, seconds=5.0)
    assert find_frontier([quick_start, quick_words], [TARGET]).cost_latency == (quick_start,)
    assert find_frontier([quick_start, quick_words], [tpot]).cost_latency == (quick_words,)


def test_a_family_without_a_setting_for_pixels_has_no_frontier_of_them() -> None:
    frontier = find_frontier([a_plan(100.0, 0.5, None), a_plan(200.0, 0.2, None)])
    assert frontier.cost_pixels == ()
    assert len(frontier.cost_latency) == 2


def test_pixels_are_the_mean_over_the_declared_images() -> None:
    small, large = (replace(make_tokens().images[0], kept_pixels=n, share=s) for n, s in ((1000, 0.75), (5000, 0.25)))
    assert kept_pixels(make_plan(tokens=make_tokens(images=(small, large)))) == 2000
