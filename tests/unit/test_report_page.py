"""The page of ``vlmctl report``: what stands on it, that it stands by itself, and what it looked like when read."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import make_gpu, make_latency, make_no_fit, make_plan, make_tokens
from tests.support.golden import assert_golden
from vlm_operator.cli.main import main
from vlm_operator.report.charts import histogram, scatter, strips
from vlm_operator.report.choices import Choices, latency_picture, pixels_picture
from vlm_operator.report.page import render_page, render_picture
from vlm_operator.report.sheet import Sheet
from vlm_operator.sizing.frontier import find_frontier
from vlm_operator.sizing.plan import ImageShare, NoFit, Percentiles, Plan
from vlm_operator.sizing.workload import Constraints, ImageCount, ImageSize, LatencyTarget, Workload

TARGET = LatencyTarget(metric="ttft", percentile=95, seconds=2.0)
VOID = {"meta", "br", "hr", "img", "input", "link", "rect", "path", "circle"}
WORKLOAD = Workload(
    image_sizes=(ImageSize(width=4032, height=3024, weight=3), ImageSize(width=1654, height=2339)),
    images_per_request=(ImageCount(count=1, weight=2), ImageCount(count=4)),
    prompt_tokens_p50=300,
    prompt_tokens_max=900,
    output_tokens_p50=150,
    output_tokens_max=500,
    requests_per_minute=60,
)


class Strict(HTMLParser):
    """Reads a page and holds it to what is well-formed: everything opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def read(page: str) -> Strict:
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def seen(pixels: int, **changes: Any) -> dict[str, Any]:
    image = replace(make_tokens().images[0], kept_pixels=pixels)
    return {"tokens": make_tokens(images=(image,)), "cap_value": pixels, **changes}


def some_plans() -> list[Plan]:
    slow = replace(make_latency(), ttft=Percentiles(p50=1.0, p95=3.0, p99=4.0))
    fast = replace(make_latency(), ttft=Percentiles(p50=0.1, p95=0.3, p99=0.4))
    h100 = make_gpu(id="h100", display_name="NVIDIA H100")
    return [
        make_plan(**seen(1_003_520)),
        make_plan(**seen(1_003_520, gpu=make_gpu(id="l4", display_name="NVIDIA L4"), hourly_cents=71.0, latency=slow)),
        make_plan(**seen(1_003_520, gpu=h100, hourly_cents=688.0, latency=fast)),
        make_plan(**seen(2_007_040, gpu=h100, hourly_cents=690.0)),
        make_plan(**seen(1_003_520, gpu=make_gpu(id="a100", display_name="NVIDIA A100"), hourly_cents=900.0)),
    ]


def a_sheet(declared: Plan | NoFit | None = None, name: str = "invoices", **changes: Any) -> Sheet:
    plans = some_plans()
    outcome = plans[0] if declared is None else declared
    choices = Choices(
        name=name,
        model_id=outcome.model_id,
        declared=outcome,
        targets=(TARGET,),
        plans=plans,
        frontier=find_frontier(plans, [TARGET], 1_000_000),
    )
    sheet = Sheet(
        choices=choices,
        workload=WORKLOAD,
        constraints=Constraints(latency_targets=(TARGET,), min_pixels_per_image=1_003_520),
        engine_version="0.33.0",
        file="invoices.yaml",
    )
    return replace(sheet, **changes)


def test_the_page_is_the_one_that_was_read() -> None:
    assert_golden("report/page.html", render_page([a_sheet()]))


def test_the_page_of_what_does_not_fit_is_the_one_that_was_read() -> None:
    assert_golden("report/no_fit.html", render_page([a_sheet(make_no_fit())]))


def test_the_picture_is_the_one_that_was_seen() -> None:
    assert_golden("report/frontier.svg", render_picture(a_sheet().choices) or "")


@pytest.mark.parametrize("outcome", [None, make_no_fit()], ids=["plan", "no fit"])
def test_a_page_stands_by_itself(outcome: NoFit | None) -> None:
    page = render_page([a_sheet(outcome)])
    parsed = read(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(parsed.tags)
    assert not {"src", "href", "srcset", "xlink:href", "action"} & {name for _, name, _ in parsed.attributes}
    assert not re.search(r"url\(|@import|https?://", page)
    assert "default-src 'none'" in " ".join(parsed.values("content"))


@pytest.mark.parametrize("outcome", [None, make_no_fit()], ids=["plan", "no fit"])
def test_a_page_says_its_language_its_title_and_what_each_drawing_shows(outcome: NoFit | None) -> None:
    parsed = read(render_page([a_sheet(outcome), a_sheet(name="other")]))
    assert ("html", "lang", "en") in parsed.attributes
    assert "width=device-width" in " ".join(parsed.values("content"))
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    named = [name for value in parsed.values("aria-labelledby") for name in value.split()]
    assert set(named) <= set(ids)
    drawings = parsed.tags["svg"]
    assert parsed.values("role").count("img") + parsed.values("aria-hidden").count("true") == drawings
    assert parsed.tags["h1"] == 2


def test_the_answer_the_figures_and_how_sure_they_are_stand_on_the_page() -> None:
    words = read(render_page([a_sheet()])).words
    for figure in (
        "2 replicas × 1 L40S 48GB",
        "TTFT p95 1.2 s (target 2.0 s)",
        "$1.72/h",
        "840 ms to 1.7 s in nine of ten measurements",
        "KV cache 23.1",
        "context length 6,448 6,656",
        "H100 80GB",
        "the cheapest that meets every objective",
        "kernels of this GPU were measured",
        "60 requests a minute",
        "at least 1,003,520 pixels",
        "vlmctl render -f invoices.yaml",
    ):
        assert figure in words, figure


def test_everything_that_was_declared_stands_on_the_page() -> None:
    workload = replace(WORKLOAD, repeat_percent=20, shared_prefix_tokens=150, burst_percent=300)
    constraints = Constraints(
        latency_targets=(TARGET,),
        min_image_tokens=256,
        quantisations=("none", "fp8"),
        max_gpus_per_replica=4,
        max_hourly_cost_cents=500,
        max_replicas=3,
    )
    words = read(render_page([a_sheet(workload=workload, constraints=constraints)])).words
    for declared in (
        "75 % 4032×3024 · 25 % 1654×2339",
        "67 % with 1 image · 33 % with 4 images",
        "20 % of the images · the first 150 prompt tokens",
        "60 requests a minute, peaks of 300 %",
        "at least 256 tokens of an image · weights in none, fp8",
        "1 to 3",
        "at most 4 GPUs a replica · at most $5.00/h",
    ):
        assert declared in words, declared


def test_the_memory_parts_on_the_page_sum_to_its_total() -> None:
    page = render_page([a_sheet()])
    memory = page[page.index("s1-memory") : page.index("s1-images")]
    figures = [float(figure) for figure in re.findall(r'<td class="number">(-?[\d.]+)</td>', memory)]
    assert sum(figures[:-1]) == pytest.approx(figures[-1])


def test_what_does_not_fit_says_why_and_what_would() -> None:
    words = read(render_page([a_sheet(make_no_fit())])).words
    assert "✘ Nothing fits (18 candidates judged)" in words
    assert "weights 68.4 GiB leave 1.9 GiB" in words
    assert "4 GPUs instead of 2 (accelerators.maxPerReplica: 4)" in words


def test_a_missed_target_is_said_in_words_beside_its_mark() -> None:
    late = make_plan(latency=replace(make_latency(), ttft=Percentiles(p50=1.0, p95=3.0, p99=4.0)))
    words = read(render_page([a_sheet(late)])).words
    assert "✘ missed" in words
    assert "✔ kept" not in words


def test_text_of_others_cannot_become_markup() -> None:
    plan = make_plan(reasons=("<script>alert(1)</script>",), gpu=make_gpu(display_name='"><img src=x>'))
    parsed = read(render_page([a_sheet(plan, name="<b>x</b>")]))
    assert not {"script", "img", "b"} & set(parsed.tags)
    assert "<script>alert(1)</script>" in parsed.words


def test_unknown_prices_leave_a_page_without_pictures_of_prices() -> None:
    plan = make_plan(hourly_cents=None)
    choices = replace(a_sheet().choices, declared=plan, plans=[plan], frontier=find_frontier([plan]))
    parsed = read(render_page([a_sheet(choices=choices)]))
    assert "price unknown" in parsed.words
    assert "What more money buys" not in parsed.words
    assert render_picture(choices) is None


def test_a_free_gpu_has_a_place_in_the_picture() -> None:
    plans = [make_plan(**seen(1_000, hourly_cents=0.0)), *some_plans()]
    choices = replace(a_sheet().choices, plans=plans, frontier=find_frontier(plans))
    read(render_page([a_sheet(choices=choices)]))


def test_the_same_sheets_give_the_same_bytes() -> None:
    assert render_page([a_sheet()]) == render_page([a_sheet()])


def test_every_plan_lies_within_the_picture_and_the_frontier_is_numbered_by_price() -> None:
    for draw in (latency_picture, pixels_picture):
        picture = draw(a_sheet().choices)
        assert picture is not None
        chart = scatter(picture)
        assert all(54 <= dot.x <= 338 and 24 <= dot.y <= 196 for dot in chart.dots)
        numbered = sorted((dot.number, dot.x) for dot in chart.dots if dot.number is not None)
        assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
        assert [x for _, x in numbered] == sorted(x for _, x in numbered)


def test_plans_that_all_see_the_same_are_no_choice_of_pixels() -> None:
    plans = some_plans()[:3]
    choices = replace(a_sheet().choices, plans=plans, frontier=find_frontier(plans))
    assert pixels_picture(choices) is None
    assert latency_picture(choices) is not None


def test_a_histogram_of_many_token_counts_keeps_all_of_the_images() -> None:
    images = [
        ImageShare(width=n, height=n, share=1, tokens=n * n, prompt_tokens=n * n, resized=None, tiles=None)
        for n in range(1, 60)
    ]
    bars = histogram(images)
    assert len(bars) == 12
    heights = sum(bar.height for bar in bars)
    assert bars[0].height / heights == pytest.approx(sum(n * n <= 290 for n in range(1, 60)) / 59)


def test_percentiles_lie_on_their_line_in_order_with_the_target() -> None:
    rows = strips(make_plan(), [TARGET])
    assert [row.name for row in rows] == ["time to first token", "time per output token", "whole request"]
    for row in rows:
        places = [place for _, place, _ in row.points]
        assert places == sorted(places)
        assert min(*places, row.interval[0]) >= 16
        assert max(*places, row.interval[1]) <= 344
    assert [row.target is not None for row in rows] == [True, False, False]


@pytest.mark.parametrize(("sample", "status"), [("invoices", 0), ("nofit", 1)])
def test_a_sample_becomes_a_page(sample: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = Path(__file__).resolve().parents[2] / "manifests" / "samples"
    page = tmp_path / "report.html"
    assert main(["report", "-f", str(samples / f"{sample}.yaml"), "-o", str(page)]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert "open it in a browser" in err
    assert sample in read(page.read_text(encoding="utf-8")).words


def test_a_page_that_cannot_be_written_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = Path(__file__).resolve().parents[2] / "manifests" / "samples"
    assert main(["report", "-f", str(samples / "nofit.yaml"), "-o", str(tmp_path / "no" / "report.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
