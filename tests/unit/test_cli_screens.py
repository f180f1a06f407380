"""What people see: the screens of a plan, of nothing that fits, and of a live object."""

import dataclasses
import re
from typing import Any

import pytest

from vlm_operator.cli.explain_screen import explain_screen
from vlm_operator.cli.no_fit_screen import no_fit_screen
from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.plan_screen import Asked, plan_screen
from vlm_operator.cli.text import bar, seconds
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.memory import HostResources, MemoryBreakdown, MemoryPart
from vlm_operator.sizing.plan import (
    Alternative,
    ImageShare,
    LatencyEstimate,
    LimitCheck,
    NoFit,
    Percentiles,
    Plan,
    Rejection,
    ServerFlags,
    TokenFigures,
)
from vlm_operator.sizing.workload import LatencyTarget
from vlm_operator.units import GIB

PLAIN = Style()
ASKED = Asked(
    name="invoices",
    file="invoices.yaml",
    targets=(
        LatencyTarget(metric="ttft", percentile=95, seconds=2.0),
        LatencyTarget(metric="tpot", percentile=95, seconds=0.02),
    ),
    cents_per_thousand_images=10.0,
)


def a_gpu() -> GpuKind:
    return GpuKind(
        id="l40s",
        product="NVIDIA-L40S",
        display_name="NVIDIA L40S",
        vendor="nvidia",
        compute_capability=(8, 9),
        driver_memory_bytes=45 * GIB,
        engine_memory_bytes=int(44.4 * GIB),
        engine_memory_certainty="measured",
        bandwidth_bytes_per_second=864e9,
        bf16_flops=362e12,
        fp8_flops=733e12,
        link_bytes_per_second=None,
        hourly_cents=86.0,
        price_note="list, 2026-10",
    )


def some_flags() -> ServerFlags:
    return ServerFlags(
        tensor_parallel_size=1,
        max_model_len=6656,
        max_num_seqs=32,
        max_num_batched_tokens=8192,
        gpu_memory_utilization_percent=90,
        limit_mm_per_prompt={"image": 4},
        mm_processor_kwargs={"max_pixels": 1003520},
        hf_overrides={},
        encoder_parallel_mode="weights",
        dtype="bfloat16",
        kv_cache_dtype="auto",
        mm_processor_cache_gib=4,
        trust_remote_code=False,
    )


def a_plan(**changes: Any) -> Plan:
    sizes = [("weights", 15.63), ("encoder peak", 1.94), ("CUDA graphs", 0.58), ("KV cache", 23.06)]
    parts = [MemoryPart(name=name, size_bytes=int(size * GIB)) for name, size in sizes]
    headroom = int(44.4 * GIB) - sum(part.size_bytes for part in parts)
    note = "what is left if every estimate is at its bad end, a note long enough to be folded twice over"
    parts.append(MemoryPart(name="headroom", size_bytes=headroom, note=note))
    images = (
        ImageShare(
            width=4032,
            height=3024,
            share=0.6,
            tokens=1230,
            prompt_tokens=1232,
            resized=(1148, 840),
            tiles=None,
        ),
        ImageShare(
            width=1654,
            height=2339,
            share=0.4,
            tokens=1260,
            prompt_tokens=1262,
            resized=(840, 1176),
            tiles=None,
        ),
    )
    plan = Plan(
        model_id="Qwen/Qwen2.5-VL-7B-Instruct",
        engine_version="0.33.0",
        gpu=a_gpu(),
        gpus_per_replica=1,
        replicas=2,
        flags=some_flags(),
        images_per_prompt=4,
        cap_name="max_pixels",
        cap_value=1003520,
        host=HostResources(cpu_cores=4, memory_bytes=32 * GIB, shared_memory_bytes=GIB),
        memory=MemoryBreakdown(parts=tuple(parts)),
        kv_cache_tokens=432000,
        concurrent_requests=67,
        limits=(
            LimitCheck(name="context length", needed=6448, limit=6656),
            LimitCheck(name="encoder budget", needed=1260, limit=8192),
            LimitCheck(name="batch tokens", needed=1, limit=8192),
            LimitCheck(name="KV cache", needed=206336, limit=432000),
        ),
        tokens=TokenFigures(
            images=images,
            image_p50=1230,
            image_p99=1260,
            image_max=1260,
            request_p50=1712,
            request_p99=5948,
            request_max=6448,
        ),
        latency=LatencyEstimate(
            ttft=Percentiles(p50=0.41, p95=1.2, p99=1.9),
            tpot=Percentiles(p50=0.021, p95=0.029, p99=0.041),
            request=Percentiles(p50=4.0, p95=8.0, p99=12.0),
            requests_per_minute_per_replica=200.4,
            certainty="estimated",
        ),
        hourly_cents=172.0,
        certainty="estimated",
        binding_constraint="KV cache",
        reasons=("the cheapest GPU that meets every target",),
        alternatives=(
            Alternative(
                gpu="NVIDIA H100 80GB",
                gpus_per_replica=1,
                tensor_parallel_size=1,
                replicas=1,
                hourly_cents=290.0,
                fits=True,
                reason="Dearer",
                message="meets all, 69 % dearer",
            ),
            Alternative(
                gpu="NVIDIA A10G",
                gpus_per_replica=1,
                tensor_parallel_size=1,
                replicas=1,
                hourly_cents=101.0,
                fits=False,
                reason="TooLittleMemory",
                message="1 × NVIDIA A10G: KV cache short by 3.1 GiB " + "and more words " * 8,
            ),
        ),
    )
    return dataclasses.replace(plan, **changes)


def screen_of(plan: Plan, asked: Asked = ASKED, style: Style = PLAIN) -> str:
    return "\n".join(plan_screen(plan, asked, style))


def test_the_answer_comes_before_the_reasons() -> None:
    lines = plan_screen(a_plan(), ASKED, PLAIN)
    assert lines[0] == "invoices · Qwen/Qwen2.5-VL-7B-Instruct · vLLM 0.33.0"
    assert lines[2].startswith("✔ 2 replicas × 1 NVIDIA L40S")
    assert "$1.72/h · $0.10 per 1,000 images" in lines[2] + lines[3]


def test_no_line_is_wider_than_the_screen() -> None:
    assert max(len(line) for line in plan_screen(a_plan(), ASKED, PLAIN)) <= COLUMNS


def test_the_printed_memory_parts_sum_to_the_printed_total() -> None:
    text = screen_of(a_plan())
    total = re.search(r"Memory per GPU +(\d+\.\d) GiB", text)
    assert total is not None
    names = "weights|encoder peak|CUDA graphs|KV cache|headroom"
    parts = [float(figure) for figure in re.findall(rf"^ +(?:{names}) +(\d+\.\d)  ", text, re.MULTILINE)]
    assert len(parts) == 5
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
    assert "price unknown" in screen_of(plan, dataclasses.replace(ASKED, cents_per_thousand_images=None))


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
        suggestions=("4 GPUs instead of 2 (accelerators.maxPerReplica: 4)",),
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
                ]
            },
        },
    }
    text = "\n".join(explain_screen(body, PLAIN))
    assert text.splitlines()[2] == "✔ ready: Serving. 2 of 2 ready"
    assert "an earlier spec" in text
    assert re.search(r"sum +1,024 MiB", text)


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
