"""What-if, compare and sweep: changes of a spec, outcomes side by side, points and the frontier over them."""

import argparse
import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders import make_no_fit, make_plan
from vlm_operator.api.validate import load_resources
from vlm_operator.cli.changes import Change, parse_change, parse_over
from vlm_operator.cli.comparison import Column, compare, comparison_screen, differences
from vlm_operator.cli.main import main
from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.planning import catalogue_inventory
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.workload import LatencyTarget

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"


def write(folder: Path, name: str = "invoices", file: str = "a.yaml", **spec: Any) -> str:
    """Write a VLMDeployment on three kinds of GPU, so that a test takes no longer than it must."""
    document = {
        "apiVersion": "vlm-operator.dev/v1alpha1",
        "kind": "VLMDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"id": MODEL},
            "workload": {
                "images": {"sizes": [{"width": 1654, "height": 2339}]},
                "traffic": {"requestsPerMinute": 30},
            },
            "quality": {"minPixelsPerImage": 1003520},
            "accelerators": {"allowed": ["l4", "l40s", "h100-80gb-sxm"], "maxPerReplica": 2},
            **spec,
        },
    }
    path = folder / file
    path.write_text(yaml.safe_dump(document))
    return str(path)


def column(outcome: Plan | NoFit, title: str = "one", *targets: LatencyTarget) -> Column:
    return Column(title=title, outcome=outcome, targets=targets)


def answer(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> str:
    assert main(command) == status
    out, err = capsys.readouterr()
    assert err == ""
    return str(out)


def test_a_change_is_written_as_it_is_read() -> None:
    for text in ("max-pixels=501760", "gpu=l40s,tp=2", "max-pixels=1,gpu=NVIDIA-L4,tp=16"):
        assert sorted(str(parse_change(text)).split(",")) == sorted(text.split(","))


@pytest.mark.parametrize("text", ["", "pixels=3", "tp=0", "tp=two", "gpu", "gpu=", "tp=1,tp=2", "max-pixels=-1"])
def test_what_is_no_change_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write"):
        parse_change(text)


def test_a_sweep_goes_over_what_is_named_with_the_values_that_are_named() -> None:
    assert parse_over("max-pixels,gpu") == {"max-pixels": (), "gpu": ()}
    assert parse_over("gpu=l4,l40s,tp,max-pixels=5,7") == {"gpu": ("l4", "l40s"), "tp": (), "max-pixels": ("5", "7")}


@pytest.mark.parametrize("text", ["", "gpus", "gpu,l4", "gpu,gpu", "tp=1,x", "max-pixels=", "=3"])
def test_what_a_sweep_cannot_go_over_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write"):
        parse_over(text)


def test_a_change_of_nothing_changes_nothing_and_a_gpu_overrides_what_is_denied(tmp_path: Path) -> None:
    text = Path(write(tmp_path, accelerators={"denied": ["l4"]})).read_text()
    spec = load_resources(text, "a.yaml")[0].spec
    assert Change().apply(spec) == spec
    changed = Change(gpu="l4", max_pixels=7).apply(spec)
    assert (changed.accelerators.allowed, changed.accelerators.denied) == (("l4",), ())
    assert changed.quality.min_pixels_per_image == 7


def test_equal_outcomes_show_no_difference() -> None:
    for outcome in (make_plan(), make_no_fit()):
        columns = [column(outcome, "left"), column(outcome, "right")]
        assert not any(row.differs for row in compare(columns))
        screen = comparison_screen(columns, Style())
        assert "no difference" in screen
        assert not any(line.startswith("≠") for line in screen)


def test_what_differs_is_marked_and_told_in_per_cent() -> None:
    screen = comparison_screen([column(make_plan()), column(make_plan(hourly_cents=344.0), "two")], Style())
    price = next(line for line in screen if "price" in line)
    assert price.startswith("≠")
    assert price.endswith("+100 %")
    assert any(line.startswith("  verdict") for line in screen)


def test_a_price_that_is_not_known_differs_from_one_that_is() -> None:
    rows = compare([column(make_plan()), column(make_plan(hourly_cents=None), "two")])
    price = next(row for row in rows if row.label == "price")
    assert price.differs
    assert price.cells[1] == "price unknown"


def test_an_outcome_that_does_not_fit_stands_beside_one_that_does_with_what_would_fit() -> None:
    screen = "\n".join(comparison_screen([column(make_plan()), column(make_no_fit(), "small")], Style()))
    assert "✔ fits" in screen
    assert "✘ NoFit" in screen
    assert "accelerators.maxPerReplica: 4" in screen


def test_each_column_is_held_against_its_own_targets() -> None:
    strict = LatencyTarget(metric="ttft", percentile=95, seconds=0.5)
    lenient = LatencyTarget(metric="ttft", percentile=95, seconds=5.0)
    rows = compare([column(make_plan(), "a", strict), column(make_plan(), "b", lenient)])
    ttft = next(row for row in rows if row.label == "TTFT p95")
    assert "✘ ≤ 500 ms" in ttft.cells[0]
    assert "✔ ≤ 5.0 s" in ttft.cells[1]


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_no_line_is_wider_than_the_screen(columns: int) -> None:
    outcomes = [column(make_plan(), f"max-pixels={n},gpu=rtx-pro-6000-blackwell-server") for n in range(columns - 1)]
    screen = comparison_screen([*outcomes, column(make_no_fit(), "none")], Style())
    assert max(map(len, screen)) <= COLUMNS


def test_differences_of_documents_have_paths() -> None:
    left, right = {"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 4}, 5], "c": 3}
    assert differences(left, right) == [
        {"path": "a[1].b", "left": 2, "right": 4},
        {"path": "a[2]", "left": None, "right": 5},
    ]
    assert differences(left, left) == []


def test_what_if_shows_the_changed_plan_beside_the_declared_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path)
    screen = answer(capsys, "plan", "-f", file, "--what-if", "max-pixels=401408", "--gpu", "l40s", "--tp", "2")
    assert "as declared" in screen
    assert "2 × NVIDIA L40S" in screen
    document = json.loads(
        answer(capsys, "plan", "-f", file, "--gpu", "l40s", "--tp", "2", "--output", "json")
    )  # fmt: skip
    declared = json.loads(answer(capsys, "plan", "-f", file, "--output", "json"))
    (changed,) = document.pop("whatIf")
    assert document == declared
    assert changed["change"] == {"gpu": "l40s", "tp": 2}
    assert changed["plan"]["tensorParallelSize"] == 2
    assert changed["plan"]["gpusPerReplica"] == 2


def test_a_what_if_that_does_not_fit_exits_with_1_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path)
    screen = answer(capsys, "plan", "-f", file, "--tp", "4", status=1)
    assert "accelerators.maxPerReplica allows 2" in " ".join(screen.split())
    screen = answer(capsys, "plan", "-f", write(tmp_path, accelerators={"allowed": ["l40s"]}), "--tp", "3", status=1)
    assert "28 attention heads cannot be split" in " ".join(screen.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--what-if", "gpu=l41"], "gpu=l41: GPU 'l41' is not in the catalogue"),
        (["--what-if", "gpu=l4", "--gpu", "l40s"], "both name it"),
        (["--what-if", "max-pixels=900000000"], "more than an image may have"),
    ],
)
def test_a_what_if_that_cannot_be_asked_exits_with_2(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-f", write(tmp_path), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_pixels_of_a_model_that_sees_a_fixed_size_change_nothing_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, model={"id": "llava-hf/llava-1.5-7b-hf"}, quality={})
    screen = answer(capsys, "plan", "-f", file, "--what-if", "max-pixels=401408")
    assert "no difference" in screen
    assert "max-pixels changes nothing here" in screen


def test_a_file_compared_with_itself_shows_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path)
    assert "no difference" in answer(capsys, "compare", file, file)
    document = json.loads(answer(capsys, "compare", file, file, "-o", "json"))
    assert document["differences"] == []
    assert document["asked"] == []
    assert document["left"] == document["right"]


def test_compare_says_what_is_asked_differently_and_what_comes_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = write(tmp_path)
    right = write(tmp_path, file="b.yaml", quality={"minPixelsPerImage": 401408})
    screen = answer(capsys, "compare", left, right)
    assert "quality.minPixelsPerImage: 1003520 → 401408" in screen
    assert "≠ tokens of an image" in screen
    document = json.loads(answer(capsys, "compare", left, right, "-o", "json"))
    assert document["asked"] == [{"path": "quality.minPixelsPerImage", "left": 1003520, "right": 401408}]
    assert "plan.capValue" in [difference["path"] for difference in document["differences"]]


def test_objects_of_two_files_are_paired_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = tmp_path / "both.yaml"
    both.write_text(f"{Path(write(tmp_path, 'one')).read_text()}---\n{Path(write(tmp_path, 'two')).read_text()}")
    assert main(["compare", str(both), write(tmp_path, "two", file="c.yaml")]) == 2
    assert "one is in" in capsys.readouterr().err
    items = json.loads(answer(capsys, "compare", str(both), str(both), "-o", "json"))["items"]
    assert [item["left"]["name"] for item in items] == ["one", "two"]


def test_standard_input_cannot_be_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "-", "-"]) == 2
    assert "once only" in capsys.readouterr().err


def test_csv_parses_back_to_the_points_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("sweep", "-f", write(tmp_path), "--over", "max-pixels=401408,1003520,gpu,tp", "--output")
    points = json.loads(answer(capsys, *command, "json"))["points"]
    rows = list(csv.DictReader(io.StringIO(answer(capsys, *command, "csv"), newline="")))
    assert len(points) == 12  # two steps of pixels, three GPUs, one and two of them
    assert [[_as_csv(value) for value in point.values()] for point in points] == [list(row.values()) for row in rows]
    assert {point["verdict"] for point in points} <= {"Fits", "MissesTarget", "DoesNotFit"}
    assert {point["gpu"] for point in points} == {"l4", "l40s", "h100-80gb-sxm"}


def _as_csv(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def test_no_point_of_a_sweep_beats_one_that_is_on_the_frontier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, objectives={"ttft": {"percentile": 95, "milliseconds": 3000}})
    points = json.loads(answer(capsys, "sweep", "-f", file, "-o", "json"))["points"]
    fits = [point for point in points if point["verdict"] == "Fits"]
    front = [point for point in fits if point["onCostPixelsFrontier"]]
    assert front
    for best in front:
        for other in fits:
            cheaper = other["hourlyCostCents"] <= best["hourlyCostCents"]
            sees_more = other["keptPixelsPerImage"] >= best["keptPixelsPerImage"]
            same = (other["hourlyCostCents"], other["keptPixelsPerImage"]) == (
                best["hourlyCostCents"],
                best["keptPixelsPerImage"],
            )
            assert same or not (cheaper and sees_more)


def test_a_plan_that_misses_the_target_is_shown_as_such_where_none_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, objectives={"ttft": {"percentile": 95, "milliseconds": 1}})
    command = ("sweep", "-f", file, "--over", "gpu")
    points = json.loads(answer(capsys, *command, "-o", "json"))["points"]
    assert {point["verdict"] for point in points} == {"MissesTarget"}
    assert all(point["ttftP95Milliseconds"] > 1 for point in points)
    assert "3 fit but miss a latency target" in answer(capsys, *command)


def test_the_frontier_stands_in_the_terminal_within_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = answer(capsys, "sweep", "-f", write(tmp_path))
    assert "Price against TTFT p95" in screen
    assert "Price against pixels" in screen
    assert "◆" in screen
    assert max(len(line) for line in screen.splitlines()) <= COLUMNS


def test_every_plan_on_the_frontier_was_tried_under_simulated_traffic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("sweep", "-f", write(tmp_path), "--over", "max-pixels,gpu,tp", "-o", "json")
    points = json.loads(answer(capsys, *command))["points"]
    front = [p for p in points if p["onCostLatencyFrontier"] or p["onCostPixelsFrontier"]]
    assert front
    assert all(point["simulated"] for point in front)
    quick = json.loads(answer(capsys, *command, "--no-simulation"))["points"]
    assert not any(point["simulated"] for point in quick)


def test_the_declared_plan_is_a_point_of_a_sweep_over_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path)
    estimate = json.loads(answer(capsys, "plan", "-f", file, "-o", "json"))
    points = json.loads(answer(capsys, "sweep", "-f", file, "--over", "gpu", "-o", "json"))["points"]
    chosen = next(point for point in points if point["accelerator"] == estimate["plan"]["accelerator"])
    assert chosen["hourlyCostCents"] == pytest.approx(estimate["estimate"]["hourlyCostCents"], abs=1)
    assert chosen["kvCacheTokens"] == estimate["estimate"]["kvCacheTokens"]


def test_a_gpu_that_cannot_be_had_is_a_point_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("- {gpu: l40s, gpusPerNode: 1, nodes: 1}\n")
    command = ["--inventory", str(inventory), "--over", "gpu=l40s,l4", "-o", "json"]
    points = json.loads(answer(capsys, "sweep", "-f", write(tmp_path, accelerators={}), *command))["points"]
    assert [(point["gpu"], point["verdict"]) for point in points] == [("l40s", "Fits"), ("l4", "DoesNotFit")]
    assert points[1]["reason"] == "NoGPUs"


def test_a_sweep_in_which_nothing_fits_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, accelerators={"allowed": ["l4"], "maxHourlyCostCents": 1})
    assert "0 fit" in answer(capsys, "sweep", "-f", file, "--over", "max-pixels", status=1)
    assert main(["sweep", "-f", file, "-o", "svg"]) == 2
    assert "nothing to draw" in capsys.readouterr().err


def test_the_svg_is_a_picture_by_itself_with_words_for_those_who_do_not_see_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = ET.fromstring(answer(capsys, "sweep", "-f", write(tmp_path), "-o", "svg"))  # noqa: S314 - our own picture
    svg = "{http://www.w3.org/2000/svg}"
    assert picture.tag == f"{svg}svg"
    assert picture.find(f"{svg}title") is not None
    assert "on the frontier" in "".join((picture.find(f"{svg}desc") or picture).itertext())
    assert not any("href" in name for element in picture.iter() for name in element.attrib)


def test_every_gpu_of_the_catalogue_is_a_point_of_a_sweep_over_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, accelerators={})
    points = json.loads(answer(capsys, "sweep", "-f", file, "--over", "gpu", "-o", "json"))["points"]
    assert [point["gpu"] for point in points] == sorted({shape.gpu.id for shape in catalogue_inventory().shapes})
