"""The page of ``vlmctl report``, opened in a real Chromium: on a phone, on a desk, in the dark and on paper."""

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.support.browser import MISSING, Page, browser_page, find_browser
from vlm_operator.cli.main import main

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLES: Final = ("chat", "frames", "invoices", "nofit")
PHONE: Final = 360
DESK: Final = 1280

CONTRASTS: Final = """
(() => {
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest('svg')) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(element.textContent.trim().slice(0, 40) + ': ' + contrast.toFixed(2));
  }
  return found;
})()
"""
"""Texts with less than the contrast that WCAG 2.2 asks for (1.4.3, level AA)."""

OUTSIDE: Final = """
[...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  return box.width && (box.right > screen.width + 0.5 || box.left < -0.5);
}).map(element => element.tagName + ' ' + element.textContent.trim().slice(0, 40))
"""

SMALLEST_TEXT: Final = """
Math.min(...[...document.querySelectorAll('svg.chart text')].map(text => {
  const scale = text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width;
  return parseFloat(getComputedStyle(text).fontSize) * scale;
}), ...[...document.querySelectorAll('p, td, th, dd, dt, li, small, figcaption, caption')].map(element =>
  parseFloat(getComputedStyle(element).fontSize)))
"""

CUT: Final = """
[...document.querySelectorAll('svg.chart text')].filter(text => {
  const box = text.getBoundingClientRect(), around = text.ownerSVGElement.getBoundingClientRect();
  return box.left < around.left - 0.5 || box.right > around.right + 0.5 || box.bottom > around.bottom + 0.5;
}).map(text => text.textContent)
"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = find_browser()
    if found is None and os.environ.get("CI"):
        pytest.fail(MISSING)
    if found is None:
        pytest.skip(MISSING)
    return found


@pytest.fixture(scope="module")
def page(browser: str) -> Iterator[Page]:
    with browser_page(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reports")
    found = {}
    for sample in SAMPLES:
        file = folder / f"{sample}.html"
        main(["report", "-f", str(ROOT / "manifests" / "samples" / f"{sample}.yaml"), "-o", str(file)])
        found[sample] = file.as_uri()
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_browser_asks_for_nothing_else_and_complains_of_nothing(
    sample: str, page: Page, reports: dict[str, str]
) -> None:
    page.open(reports[sample], width=DESK)
    assert page.requests == [reports[sample]]
    assert page.complaints == []
    assert page.evaluate("document.compatMode") == "CSS1Compat"
    assert page.evaluate("document.querySelector('h1').textContent") == sample


@pytest.mark.parametrize("width", [PHONE, 600, DESK])
@pytest.mark.parametrize("sample", SAMPLES)
def test_nothing_lies_beside_the_screen_and_every_text_can_be_read(
    sample: str, width: int, page: Page, reports: dict[str, str]
) -> None:
    page.open(reports[sample], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(SMALLEST_TEXT) >= 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_text_stands_out_from_what_is_behind_it_by_day_and_by_night(
    sample: str, scheme: str, page: Page, reports: dict[str, str]
) -> None:
    page.open(reports[sample], width=DESK, scheme=scheme)
    red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
    assert (red < 64) == (scheme == "dark")
    assert page.evaluate(CONTRASTS) == []


@pytest.mark.parametrize("sample", SAMPLES)
def test_paper_stays_white_and_takes_a_few_pages(sample: str, page: Page, reports: dict[str, str]) -> None:
    page.open(reports[sample], width=794, media="print", scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRASTS) == []
    sheets = len(re.findall(rb"/Type\s*/Page\b(?!s)", page.pdf()))
    assert 1 <= sheets <= 5


def test_every_drawing_has_a_name_that_says_its_figures(page: Page, reports: dict[str, str]) -> None:
    page.open(reports["invoices"], width=DESK)
    names = page.accessible_names("image")
    assert len(names) == page.evaluate("document.querySelectorAll('svg[role=img]').length")
    assert len(names) == 4
    for word in ("time to first token", "of the images take", "plans", "p95"):
        assert any(word in name for name in names), word
    headings = page.accessible_names("heading")
    for title in (
        "Latency",
        "Memory of one GPU",
        "Images and tokens",
        "Limits",
        "What more money buys",
        "How sure this is",
    ):
        assert title in headings


def test_the_waterfall_fills_the_bar_from_end_to_end(page: Page, reports: dict[str, str]) -> None:
    page.open(reports["invoices"], width=DESK)
    parts = page.evaluate(
        "[...document.querySelectorAll('[id$=memory]')][0].parentElement.querySelectorAll('svg.bar').values()"
        ".map(bar => [...bar.querySelectorAll('rect')].at(-1)).map(it => [it.x.baseVal.value, it.width.baseVal.value])"
        ".toArray()"
    )
    assert parts[0][0] == 0
    for (start, width), (following, _) in pairwise(parts):
        assert following == pytest.approx(start + width, abs=0.35)
    assert sum(parts[-1]) == pytest.approx(100, abs=0.35)
