"""Where everything in a chart lies, in the units of its view box; the templates only write it down.

Called by ``page``. A chart is 360 wide, the width of a phone, so that its text is legible there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vlm_operator.report.axes import Axis
from vlm_operator.report.choices import Mark, Picture, Standing
from vlm_operator.report.figures import count, metric_words, percent, runs_on, seconds
from vlm_operator.sizing.plan import ImageShare, Plan
from vlm_operator.sizing.workload import LatencyMetric, LatencyTarget

WIDTH: Final = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 338.0, 24.0, 196.0
_MOST_BARS: Final = 12
_METRICS: Final[tuple[tuple[LatencyMetric, str], ...]] = (
    ("ttft", "time to first token"),
    ("tpot", "time per output token"),
    ("request_latency", "whole request"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark of an axis: where it is and what it says; ``text`` may be empty where words would touch."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A plan in a scatter chart."""

    x: float
    y: float
    standing: Standing
    number: int | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Price against a figure: dots, the steps of the frontier as an SVG path, the target's height."""

    title: str
    description: str
    x_title: str
    y_title: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    steps: str
    target: Tick | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a histogram: where it stands, how high it is, what it counts."""

    x: float
    y: float
    width: float
    height: float
    label: str
    figure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A latency on a line from zero: its percentiles, the interval of the 95th, the target where there is one."""

    name: str
    y: float
    points: tuple[tuple[str, float, str], ...]
    interval: tuple[float, float]
    end: str
    target: Tick | None
    words: str


def scatter(picture: Picture) -> Scatter:
    """Return the chart of one frontier."""
    dots = tuple(_dot(mark, picture) for mark in picture.marks)
    front = sorted((dot for dot in dots if dot.number is not None), key=lambda dot: dot.number or 0)
    target = None
    if picture.target is not None:
        target = Tick(at=_up(picture.figure, picture.target), text=f"target {picture.figure.words(picture.target)}")
    chosen = next((mark for mark in picture.marks if mark.standing == "declared"), None)
    said = f"{count(len(dots), 'plan')}, {len(front)} of them on the frontier."
    if chosen is not None:
        said += f" As declared: {_words(chosen, picture)}."
    return Scatter(
        title=picture.title,
        description=said,
        x_title=f"{picture.price.title}, logarithmic",
        y_title=f"{picture.figure.title}, logarithmic",
        x_ticks=_spread(
            [Tick(at=_across(picture.price, t), text=picture.price.words(t)) for t in picture.price.ticks()]
        ),
        y_ticks=tuple(Tick(at=_up(picture.figure, t), text=picture.figure.words(t)) for t in picture.figure.ticks()),
        dots=dots,
        steps=_steps(front),
        target=target,
    )


def histogram(images: Sequence[ImageShare]) -> tuple[Bar, ...]:
    """Return the share of images by tokens: a bar for each count, or for each of twelve ranges where they are many."""
    total = sum(image.share for image in images) or 1.0
    shares: dict[int, float] = {}
    for image in images:
        shares[image.tokens] = shares.get(image.tokens, 0.0) + image.share / total
    groups = _grouped(shares)
    highest = max(share for _, share in groups)
    slot = (_RIGHT - _LEFT) / len(groups)
    width = min(slot * 0.8, 60.0)
    bars = []
    for at, (label, share) in enumerate(groups):
        height = share / highest * (_BOTTOM - _TOP - 14)
        x = _LEFT + slot * (at + 0.5) - width / 2
        bars.append(
            Bar(x=x, y=_BOTTOM - height, width=width, height=height, label=label, figure=percent(share))
        )  # fmt: skip
    return tuple(bars)


def strips(plan: Plan, targets: Sequence[LatencyTarget]) -> tuple[Strip, ...]:
    """Return a line for each latency, from zero to its largest figure or target."""
    found = []
    for at, (metric, name) in enumerate(_METRICS):
        figures = plan.latency.of(metric)
        low, high = (figures.p95 * share for share in plan.latency.spread[metric])
        own = next((target for target in targets if target.metric == metric), None)
        end = max(figures.p99, high, own.seconds if own else 0.0) * 1.1 or 1.0
        values = [(f"p{p}", figures.at(p)) for p in (50, 95, 99)]
        target = None
        if own is not None:
            words = f"{metric_words(own).split()[-1]} ≤ {seconds(own.seconds)}"
            target = Tick(at=_linear(own.seconds / end), text=words)
        found.append(
            Strip(
                name=name,
                y=34.0 + 62 * at,
                interval=(_linear(low / end), _linear(high / end)),
                points=tuple((word, _linear(value / end), seconds(value)) for word, value in values),
                end=seconds(end),
                target=target,
                words=", ".join(f"{word} {seconds(value)}" for word, value in values)
                + f", p95 between {seconds(low)} and {seconds(high)}",
            )
        )
    return tuple(found)


def _dot(mark: Mark, picture: Picture) -> Dot:
    x, y = _across(picture.price, mark.cents), _up(picture.figure, mark.figure)
    return Dot(x=x, y=y, standing=mark.standing, number=mark.number, words=_words(mark, picture))


def _words(mark: Mark, picture: Picture) -> str:
    return f"{runs_on(mark.plan)}, {picture.price.words(mark.cents)}/h, {picture.figure.words(mark.figure)}"


def _across(axis: Axis, value: float) -> float:
    return round(_LEFT + axis.place(value) * (_RIGHT - _LEFT), 1)


def _up(axis: Axis, value: float) -> float:
    return round(_BOTTOM - axis.place(value) * (_BOTTOM - _TOP), 1)


def _linear(share: float) -> float:
    return round(16 + share * (WIDTH - 32), 1)


def _spread(ticks: Sequence[Tick], width: float = 44.0) -> tuple[Tick, ...]:
    """Return the ticks of a horizontal axis, without words where these would touch the words before."""
    shown: list[Tick] = []
    last = -math.inf
    for tick in ticks:
        fits = tick.at - last >= width
        shown.append(tick if fits else Tick(at=tick.at, text=""))
        last = tick.at if fits else last
    return tuple(shown)


def _steps(front: Sequence[Dot]) -> str:
    """Return the frontier as a path: what a price buys holds until the next plan on it."""
    if not front:
        return ""
    first, *rest = front
    parts = [f"M{first.x} {first.y}", *(f"H{dot.x}V{dot.y}" for dot in rest), f"H{_RIGHT}"]
    return "".join(parts)


def _grouped(shares: dict[int, float]) -> list[tuple[str, float]]:
    """Return (tokens in words, share), the counts in ranges of equal width where there are too many to show each."""
    counts = sorted(shares)
    if len(counts) <= _MOST_BARS:
        return [(f"{tokens:,}", shares[tokens]) for tokens in counts]
    low, width = counts[0], -(-(counts[-1] - counts[0] + 1) // _MOST_BARS)
    sums = [0.0] * _MOST_BARS
    for tokens in counts:
        sums[(tokens - low) // width] += shares[tokens]
    return [(f"≥ {low + at * width:,}", share) for at, share in enumerate(sums)]
