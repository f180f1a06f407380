"""What people see: the screens of a plan, of nothing that fits, and of a live object."""

import dataclasses
import re
from typing import Any

import pytest

from tests.support.builders import make_alternative, make_gpu, make_memory, make_plan, make_tokens
from vlm_operator.cli.explain_screen import explain_screen
from vlm_operator.cli.no_fit_screen import no_fit_screen
from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.plan_screen import Asked, plan_screen
from vlm_operator.cli.text import bar
from vlm_operator.report.figures import seconds
from vlm_operator.report.status_plan import plan_status
from vlm_operator.sizing.memory import MemoryBreakdown
from vlm_operator.sizing.plan import (
    LimitCheck,
    NoFit,
    Plan,
    Rejection,
    Suggestion,
)
from vlm_operator.sizing.workload import LatencyTarget

PLAIN = Style()
ASKED = Asked(
    name="invoices",
    file="invoices.yaml",
    targets=(
        LatencyTarget(metric="ttft", percentile=95, seconds=2.0),
        LatencyTarget(metric="tpot", percentile=95, seconds=0.02),
    ),
)


def a_plan(**changes: Any) -> Plan:
    """Return a plan with two image sizes, all four limits, and texts that have to be folded."""
    long_note = "what is left if every estimate is at its bad end, a note long enough to be folded twice over"
    *parts, headroom = make_memory().parts
    first = make_tokens().images[0]
    scan = dataclasses.replace(first, width=1654, height=2339, share=0.4, tokens=1260, resized=(840, 1176))
    shown: dict[str, Any] = {
        "gpu": make_gpu(display_name="NVIDIA L40S", price_note="list, 2026-10"),
        "memory": MemoryBreakdown(parts=(*parts, headroom._replace(note=long_note))),
        "limits": (
            LimitCheck(name="context length", needed=6448, limit=6656),
            LimitCheck(name="encoder budget", needed=1260, limit=8192),
            LimitCheck(name="batch tokens", needed=1, limit=8192),
            LimitCheck(name="KV cache", needed=206336, limit=432000),
        ),
        "tokens": make_tokens(images=(dataclasses.replace(first, share=0.6), scan)),
        "alternatives": (
            make_alternative(),
            make_alternative(
                gpu="NVIDIA A10G",
                hourly_cents=101.0,
                fits=False,
                reason="TooLittleMemory",
                message="1 × NVIDIA A10G: KV cache short by 3.1 GiB " + "and more words " * 8,
            ),
        ),
    }
    return make_plan(**(shown | changes))


def screen_of(plan: Plan, asked: Asked = ASKED, style: Style = PLAIN) -> str:
    return "\n".join(plan_screen(plan, asked, style))


def test_the_answer_comes_before_the_reasons() -> None:
    lines = plan_screen(a_plan(), ASKED, PLAIN)
    assert lines[0] == "invoices · Qwen/Qwen2.5-VL-7B-Instruct · vLLM 0.33.0"
    assert lines[2].startswith("✔ 2 replicas × 1 NVIDIA L40S")
    assert "$1.72/h · $0.24 per 1,000 images" in lines[2] + lines[3]


def test_no_line_is_wider_than_the_screen() -> None:
    assert max(len(line) for line in plan_screen(a_plan(), ASKED, PLAIN)) <= COLUMNS


def test_the_printed_memory_parts_sum_to_the_printed_total() -> None:
    text = screen_of(a_plan())
    total = re.search(r"Memory per GPU +(\d+\.\d) GiB", text)
    assert total is not None
    names = "weights|encoder peak|CUDA graphs|outside budget|KV cache|headroom"
    parts = [float(figure) for figure in re.findall(rf"^ +(?:{names}) +(\d+\.\d)  ", text, re.MULTILINE)]
    assert len(parts) == 6
    assert sum(parts) == pytest.approx(float(total[1]))


def test_the_limit_that_breaks_first_is_marked() -> None:
    marked = [line for line in screen_of(a_plan()).splitlines() if "breaks first" in line]
    assert len(marked) == 1
    assert "KV cache" in marked[0]


def test_a_target_that_is_missed_is_marked_in_words_and_not_by_colour_alone() -> None:
    text = screen_of(a_plan())
    assert "p95 ≤ 2.0 s ✔" in text
    assert "p95 ≤ 20 ms ✘" in text


def test_colour_is_added_only_when_asked_for() -> None:
    assert "\x1b[" not in screen_of(a_plan())
    coloured = screen_of(a_plan(), style=Style(enabled=True))
    assert "\x1b[32m✔\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == screen_of(a_plan())


def test_an_unknown_price_is_said_and_not_left_out() -> None:
    plan = a_plan(hourly_cents=None)
    assert "price unknown" in screen_of(plan)


def test_control_characters_of_a_name_never_reach_the_terminal() -> None:
    asked = dataclasses.replace(ASKED, name="in\x1b[31mvoices", file="a\x07.yaml")
    text = screen_of(a_plan(), asked)
    assert "\x1b" not in text
    assert "\x07" not in text


def test_nothing_fits_says_what_would() -> None:
    no_fit = NoFit(
        model_id="Qwen/Qwen2.5-VL-72B-Instruct",
        reason="NoFit",
        message="nothing fits",
        candidates=18,
        nearest=(
            Rejection(
                gpu="H100 80GB",
                gpus_per_replica=2,
                reason="Memory",
                message="2 × H100 80GB: short of 1.4 GiB",
            ),
        ),
        by_reason=(("TooLittleMemory", 11), ("Heads", 7)),
        suggestions=(Suggestion(words="4 GPUs instead of 2", changes={"accelerators.maxPerReplica": 4}),),
    )
    lines = no_fit_screen(no_fit, ASKED, PLAIN)
    text = "\n".join(lines)
    assert lines[0].startswith(
        "✘ invoices · Qwen/Qwen2.5-VL-72B-Instruct: nothing in the catalogue fits (18 candidates)"
    )
    assert "2 × H100 80GB     short of 1.4 GiB" in text
    assert "accelerators.maxPerReplica: 4" in text
    assert "11 TooLittleMemory · 7 Heads" in text


def test_a_live_object_without_a_status_is_explained_too() -> None:
    body = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"model": {"id": "m"}}}
    assert "no status yet; is the operator running?" in "\n".join(explain_screen(body, PLAIN))


def test_a_live_object_says_ready_first_and_that_the_status_is_stale() -> None:
    body = {
        "metadata": {"name": "a", "namespace": "b", "generation": 2},
        "spec": {"model": {"id": "m"}},
        "status": {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Serving", "message": "2 of 2 ready"}],
            "estimate": {
                "memoryPerGPU": [
                    {"part": "weights", "mebibytes": 1000},
                    {"part": "headroom", "mebibytes": 24},
                ],
                "kvCacheTokens": 432_000,
                "concurrentRequests": 67,
            },
            "plan": {"cpu": 8, "hostMemory": "32768Mi", "sharedMemory": "2048Mi"},
        },
    }
    text = "\n".join(explain_screen(body, PLAIN))
    assert text.splitlines()[2] == "✔ ready: Serving. 2 of 2 ready"
    assert "an earlier spec" in text
    assert re.search(r"Memory per GPU +1\.0 GiB seen by the engine", text)
    assert re.search(r"^ +weights +1\.0  █+ +computed +language model and its tables$", text, re.MULTILINE)
    assert "432,000 tokens of KV cache hold 67 of the largest requests at once" in text
    assert "8 CPU cores · 32.0 GiB of host memory · 2.0 GiB in /dev/shm" in text


def explained(**changes: Any) -> str:
    status = plan_status(a_plan(**changes))
    return "\n".join(explain_screen({"metadata": {"name": "a"}, "status": status}, PLAIN))


def test_a_live_object_says_what_1000_images_cost_and_how_sure_that_is() -> None:
    text = explained()
    assert "1,000 images cost $0.24 at the declared rate" in text
    assert "certainty: Calibrated, by measurements of this GPU, not of this plan" in text
    assert "certainty: Remembered, values of the model were not read" in explained(certainty="remembered")
    assert "1,000 images" not in explained(images_per_hour=None)


def test_a_word_of_another_release_is_told_as_it_is() -> None:
    text = "\n".join(explain_screen({"status": {"estimate": {"certainty": "Guessed"}}}, PLAIN))
    assert text.endswith("certainty: Guessed")


def test_the_parts_of_another_release_are_explained_as_they_are_named() -> None:
    parts = [{"part": "something new", "mebibytes": 512}, {"part": "headroom", "mebibytes": 512}]
    text = "\n".join(explain_screen({"status": {"estimate": {"memoryPerGPU": parts}}}, PLAIN))
    assert re.search(r"^ +something new +0\.5  █+$", text, re.MULTILINE)


@pytest.mark.parametrize(("value", "words"), [(0.41, "410 ms"), (1.2, "1.2 s"), (0, "0 ms"), (250.0, "250 s")])
def test_durations_carry_the_unit_that_people_would_use(value: float, words: str) -> None:
    assert seconds(value) == words


def test_a_live_object_that_does_not_fit_says_what_would_and_nothing_twice() -> None:
    message = "weights take 137 GiB"
    miss = {"accelerator": "H100", "gpusPerReplica": 1, "message": "1 × H100: too small"}
    body = {
        "metadata": {"name": "a", "generation": 1},
        "status": {
            "observedGeneration": 1,
            "conditions": [
                {"type": "Sized", "status": "False", "reason": "NoFit", "message": message},
                {"type": "Ready", "status": "False", "reason": "NoFit", "message": message},
            ],
            "noFit": {"message": message, "nearest": [miss], "suggestions": ["4 GPUs instead of 1"]},
        },
    }
    text = "\n".join(explain_screen(body, PLAIN))
    assert text.count(message) == 1
    assert "✘ not ready: NoFit" in text
    assert "4 GPUs instead of 1" in text
    assert "1 × H100: too small" in text


def test_a_bar_is_empty_only_for_nothing() -> None:
    assert bar(0.0, 10) == ""
    assert bar(0.001, 10) != ""
    assert bar(1.0, 10) == "█" * 10
