"""Plans -> one page that stands by itself: no script, no picture, no font and no style from elsewhere.

In: one ``Sheet`` for each object. Out: the text of the page; the same sheets give the same bytes. Called by ``vlmctl
report``; ``render_picture`` draws the frontier alone, for ``vlmctl sweep --output svg``.
"""

from collections.abc import Sequence
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from vlm_operator import __version__
from vlm_operator.report.charts import scatter
from vlm_operator.report.choices import Choices, latency_picture, pixels_picture
from vlm_operator.report.sheet import Sheet, sheet_context

_PANEL: Final = 276
_LINE: Final = 15


def render_page(sheets: Sequence[Sheet]) -> str:
    """Return the page of all ``sheets``."""
    names = ", ".join(sheet.choices.name for sheet in sheets)
    return _ENVIRONMENT.get_template("page.html.j2").render(
        title=f"{names}: GPUs for vision-language models",
        version=__version__,
        sheets=[sheet_context(sheet, f"s{number}") for number, sheet in enumerate(sheets, 1)],
    )


def render_picture(choices: Choices) -> str | None:
    """Return the frontier as an SVG document, None where no plan has a price."""
    pictures = [picture for picture in (latency_picture(choices), pixels_picture(choices)) if picture is not None]
    if not pictures:
        return None
    panels: list[dict[str, Any]] = []
    top = 40
    for picture in pictures:
        chart = scatter(picture)
        words = {dot.number: dot.words for dot in chart.dots if dot.number is not None}
        lines = [f"{number}: {words[number]}" for number in sorted(words)]
        panels.append({"chart": chart, "top": top, "lines": lines})
        top += _PANEL + _LINE * len(lines) + 10
    return _ENVIRONMENT.get_template("picture.svg.j2").render(
        title=f"{choices.name} · {choices.model_id}", panels=panels, height=top
    )


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("vlm_operator.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
