"""The human screen of a sweep: the frontier first, then the points where they are few enough to read."""

from collections.abc import Sequence
from typing import Final

from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.plot import plot
from vlm_operator.cli.sweep import SweepPoint
from vlm_operator.cli.text import MARGIN, fold, table
from vlm_operator.cli.what_if import FIXED_SIZE
from vlm_operator.report.choices import Choices, Mark, Picture, Standing, latency_picture, pixels_picture
from vlm_operator.report.figures import count, gpu_words, megapixels, metric_words, money, runs_on, seconds
from vlm_operator.sizing.frontier import kept_pixels, latency_seconds, meets
from vlm_operator.sizing.plan import NoFit, Plan, Rejection

_MOST_ROWS = 30
_LONG = 60
_MARKS: Final[dict[Standing, str]] = {"beaten": "·", "late": "×", "front": "●", "declared": "◆"}
_LEGEND = "● on the frontier  ◆ as declared  · beaten by another  × misses a latency target"


def sweep_screen(choices: Choices, points: Sequence[SweepPoint], style: Style) -> list[str]:
    """Return the lines of the screen."""
    title = f"{choices.name} · {choices.model_id}"
    lines = [
        *(style.paint("strong", row) for row in fold(title, COLUMNS)),
        "",
        *fold(_summary(choices, points), COLUMNS),
    ]
    pictures = [picture for picture in (latency_picture(choices), pixels_picture(choices)) if picture is not None]
    for picture in pictures:
        lines += ["", *_picture(picture, choices)]
    if pictures:
        lines += ["", f"{MARGIN}{_LEGEND}"]
    if any(p.change.max_pixels for p in points) and choices.plans and kept_pixels(choices.plans[0]) is None:
        lines += ["", f"{MARGIN}{FIXED_SIZE}"]
    if len(points) <= _MOST_ROWS:
        lines += ["", f"{MARGIN}Every point", *_rows(choices, points)]
    else:
        lines.append(f"{MARGIN}every point with every figure: --output csv")
    return [line.replace("✔", style.paint("good", "✔")).replace("✘", style.paint("bad", "✘")) for line in lines]


def _summary(choices: Choices, points: Sequence[SweepPoint]) -> str:
    late = sum(point.late for point in points)
    fits = sum(isinstance(point.outcome, Plan) for point in points) - late
    parts = [f"{fits:,} fit", f"{late:,} fit but miss a latency target" if choices.targets else ""]
    parts.append(f"{len(points) - fits - late:,} do not fit")
    return f"{count(len(points), 'point')}: {' · '.join(part for part in parts if part)}"


def _picture(picture: Picture, choices: Choices) -> list[str]:
    """Return one frontier: a plot of all plans where there are several, and the plans on it in rows."""
    lines = [f"{MARGIN}{picture.title}", *([f"{MARGIN}{picture.note}"] if picture.note else [])]
    if len(picture.marks) > 1:
        shown = [(mark.cents, mark.figure, _MARKS[mark.standing]) for mark in picture.marks]
        lines += ["", *plot(shown, picture.price, picture.figure), ""]
    heads = ["", "price", metric_words(choices.compared), "sees", "runs on"]
    rows = table([heads, *(_on_front(mark, choices) for mark in picture.front)], right=(1, 2, 3))
    return [*lines, *(f"{MARGIN}  {row}" for row in rows)]


def _on_front(mark: Mark, choices: Choices) -> list[str]:
    plan, pixels = mark.plan, kept_pixels(mark.plan)
    return [
        _MARKS[mark.standing],
        money(plan.hourly_cents),
        f"{seconds(latency_seconds(plan, choices.compared))} {'✔' if meets(plan, choices.targets) else '✘'}",
        "-" if pixels is None else megapixels(pixels),
        runs_on(plan),
    ]


def _rows(choices: Choices, points: Sequence[SweepPoint]) -> list[str]:
    """Return a line for each point; why it does not fit goes on below itself, and is said once for a run of points."""
    cells = [_cells(choices, point) for point in points]
    texts = ["runs on", *(text for _, text in cells)]
    heads = table([["", "price", metric_words(choices.compared), ""], *(row for row, _ in cells)], right=(1, 2))
    width = max(map(len, heads)) + 3
    lines = []
    for head, text, above in zip(heads, texts, ["", *texts], strict=False):
        shown = "as above" if text == above and len(text) > _LONG else text
        first, *rest = fold(shown, COLUMNS - len(MARGIN) - 2 - width)
        lines += [f"{MARGIN}  {head:<{width}}{first}", *(f"{MARGIN}  {'':<{width}}{row}" for row in rest)]
    return lines


def _cells(choices: Choices, point: SweepPoint) -> tuple[list[str], str]:
    """Return the aligned cells of a point and the text behind them."""
    outcome, change = point.outcome, str(point.change) or "as declared"
    if isinstance(outcome, Plan):
        latency = f"{seconds(latency_seconds(outcome, choices.compared))} {'✘' if point.late else '✔'}"
        return [change, money(outcome.hourly_cents), latency, ""], runs_on(outcome)
    return [change, "", "✘", ""], outcome.message if isinstance(outcome, NoFit) else _miss(outcome)


def _miss(rejection: Rejection) -> str:
    what = gpu_words(rejection.gpus_per_replica, rejection.gpu)
    return f"{what}: {rejection.message.removeprefix(f'{what}: ')}"
