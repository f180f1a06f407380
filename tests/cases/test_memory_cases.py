"""Public reports of servers that ran out of memory: the situation in, the verdict and its named reason out."""

import dataclasses
from typing import Any

import pytest

from tests.cases import situations
from tests.cases.situations import declare, pictures, plan, serve
from vlm_operator.catalogue.load import memory_calibration
from vlm_operator.cli.memory_changes import find_changes
from vlm_operator.cli.rendering import manifests_of
from vlm_operator.report.availability import available_verdict
from vlm_operator.report.observation import Observation, PodTrouble
from vlm_operator.sizing.inventory import Inventory, NodeShape
from vlm_operator.sizing.launch import Launched, LaunchFlags
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.start_up import start_up
from vlm_operator.sizing.tokens.types import ImageTokens
from vlm_operator.units import GIB, MIB, parse_quantity

QWEN_3B = "Qwen/Qwen2.5-VL-3B-Instruct"
QWEN_7B_AWQ = "Qwen/Qwen2.5-VL-7B-Instruct-AWQ"
QWEN_72B = "Qwen/Qwen2.5-VL-72B-Instruct"
QWEN_235B = "Qwen/Qwen3-VL-235B-A22B-Instruct"


def test_the_72b_in_bf16_does_not_fit_four_40_gb_cards_and_the_weights_are_named() -> None:
    """vllm-project/vllm#16570: out of memory while profiling on 4 × A100-40GB at 0.95, 1,048,576 pixels."""
    resource = declare(
        QWEN_72B,
        pictures((1024, 1024)),
        running=2,
        workload={"text": {"promptTokens": {"p50": 300, "p99": 2200}}},  # a context of 4,096 tokens
        quality={"minPixelsPerImage": 1_048_576},
        accelerators={"allowed": ["NVIDIA-A100-PCIE-40GB"], "maxPerReplica": 4},
    )
    verdict = plan(resource)
    assert isinstance(verdict, NoFit)
    four = next(miss for miss in verdict.nearest if miss.gpus_per_replica == 4)
    assert "weights 34." in four.message  # the log said 34.43 GiB on each card
    offered = "\n".join(map(str, verdict.suggestions))
    assert "8 × NVIDIA A100 40GB PCIe" in offered
    assert "Qwen2.5-VL-72B-Instruct-AWQ" in offered
    assert "accelerators.allowed" in offered


def test_twelve_small_images_are_profiled_as_small_only_with_the_cap_in_the_flags() -> None:
    """vllm-project/vllm#18550, #20123: the client resizes, which the engine does not know: it profiles 16,384."""
    images = pictures((672, 896), count=12)  # 602,112 pixels: 768 tokens each
    limits: dict[str, Any] = {
        "quality": {"minPixelsPerImage": 602_112},
        "accelerators": {"allowed": ["l4"], "maxPerReplica": 1},
        "scaling": {"maxReplicas": 1},
    }
    alone = plan(declare(QWEN_3B, images, **limits))
    assert isinstance(alone, Plan)
    resource = declare(QWEN_3B, images, running=alone.concurrent_requests, **limits)
    full = plan(resource)
    assert isinstance(full, Plan)
    assert situations.flags_of(resource, full)["--mm-processor-kwargs"]["max_pixels"] == 602_112
    flags = situations.flags_in(full)
    capped = serve(QWEN_3B, full.gpu, flags=flags, max_pixels=602_112).launch()
    assert isinstance(capped, Launched)
    assert capped.budget.tokens == max(flags.max_num_batched_tokens or 0, 768)
    assert capped.budget.items_per_batch <= capped.budget.tokens // 768
    uncapped = serve(QWEN_3B, full.gpu, flags=flags).launch()
    assert isinstance(uncapped, Launched)
    assert uncapped.budget.tokens == 16_384
    largest = full.tokens.request_max
    assert (
        uncapped.begun.cache.requests_of(largest) < alone.concurrent_requests <= capped.begun.cache.requests_of(largest)
    )


def test_switching_videos_off_is_worth_more_than_ten_gib_of_kv_cache() -> None:
    """vllm-project/vllm#25631: 5.26 GiB by default, 25.05 GiB with video 0, on one A100-40GB."""
    resource = declare(QWEN_3B, pictures((1024, 1024)), accelerators={"allowed": ["a100-40gb-sxm"]})
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    limits = situations.flags_of(resource, verdict)["--limit-mm-per-prompt"]
    assert set(limits) == {"image", "video", "audio"}
    assert (limits["video"], limits["audio"]) == (0, 0)
    gpu = situations.gpu_of("a100-40gb-sxm")
    without, default = serve(QWEN_3B, gpu).launch(), serve(QWEN_3B, gpu, videos=999).launch()
    assert isinstance(without, Launched)
    assert isinstance(default, Launched)
    assert default.modality == "video"
    images_only = without.begun.likely.kv_available_bytes
    assert images_only / GIB == pytest.approx(25.05, rel=0.1)
    assert images_only - default.begun.likely.kv_available_bytes > 10 * GIB


def test_llama_3_2_vision_is_refused_with_its_last_engine_and_a_served_model_of_its_size() -> None:
    """vllm-project/vllm#8879, #9445, #10569, #9630: a dummy batch of 256 images of 4 tiles; now unservable."""
    verdict = plan(declare("meta-llama/Llama-3.2-11B-Vision-Instruct", pictures((560, 560))))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "Unservable"
    assert "0.10.2" in verdict.message
    proposed = verdict.message.split("such as ")[1].split(" ")[0]
    served = plan(declare(proposed, pictures((560, 560))))
    assert isinstance(served, Plan)
    assert served.memory.part("weights").size_bytes * served.gpus_per_replica < 2 * 2 * 10.7e9


def test_no_plan_leaves_the_profiled_batch_to_the_engine() -> None:
    """The same reports: max_num_seqs 256 by default made the batch; the planner always chooses it."""
    resource = declare("llava-hf/llava-1.5-7b-hf", pictures((560, 560)), running=3)
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    flags = situations.flags_of(resource, verdict)
    assert 3 <= int(flags["--max-num-seqs"]) < 256
    assert int(flags["--max-num-batched-tokens"]) == verdict.flags.max_num_batched_tokens
    assert int(flags["--max-model-len"]) == verdict.flags.max_model_len


def test_the_7b_awq_starts_in_16_gb_with_a_cap_and_without_one_the_cap_is_named_before_a_larger_gpu() -> None:
    """QwenLM/Qwen3-VL#1224, #482: 16 GB at 0.75; a context that takes the largest image needs 17,000 tokens."""
    small = situations.gpu_of(
        "l4",
        display_name="a card of 16 GB",
        driver_memory_bytes=16_376 * MIB,
        engine_memory_bytes=int(15.6 * GIB),
    )
    flags = LaunchFlags(utilization_percent=75, max_model_len=17_000)
    capped = serve(QWEN_7B_AWQ, small, flags=flags, max_pixels=1_003_520).launch()
    assert isinstance(capped, Launched)
    assert capped.begun.misfit is None
    asked = serve(QWEN_7B_AWQ, small, flags=flags)
    anything = asked.launch()
    assert isinstance(anything, Launched)
    assert anything.begun.misfit is not None
    offered = [option for change in find_changes(asked, anything) for option in change.options]
    assert offered[0] == "--cap"
    assert offered.index("--cap") < offered.index("--gpu")


def test_a_plan_for_the_7b_awq_in_16_gb_renders_its_cap() -> None:
    """The same reports, from the side of an object that declares images of at most a megapixel."""
    small = situations.gpu_of("l4", engine_memory_bytes=int(15.6 * GIB))
    resource = declare(QWEN_7B_AWQ, pictures((1176, 840)))
    verdict = plan(resource, Inventory(shapes=(NodeShape(gpu=small, gpus_per_node=1),)))
    assert isinstance(verdict, Plan)
    assert 1176 * 840 <= situations.flags_of(resource, verdict)["--mm-processor-kwargs"]["max_pixels"] < 1_100_000
    parts = {part.name for part in verdict.memory.parts}
    assert {"weights", "activations", "KV cache", "outside budget"} <= parts


def test_the_pod_has_memory_for_the_image_cache_of_every_process_and_the_cache_is_always_bounded() -> None:
    """vllm-project/vllm#15294, #15085, #12973, #15597, #14805, #15357: RSS grew with every new image."""
    resource = declare("Qwen/Qwen2.5-VL-7B-Instruct", pictures((4032, 3024), count=4), running=16)
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    flags = situations.flags_of(resource, verdict)
    cache_gib = int(flags["--mm-processor-cache-gb"])
    assert cache_gib > 0
    deployment = next(child for child in manifests_of(resource, verdict) if child["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    limit = int(parse_quantity(container["resources"]["limits"]["memory"]))
    processes = 1 + 1 + verdict.gpus_per_replica  # the API server, the engine's core, one worker for each GPU
    decoded = 4 * 4032 * 3024 * 3  # the photographs of one request
    pinned = int(flags["--max-num-seqs"]) * int(flags["--max-model-len"]) * 4 * (1 + 3) * verdict.gpus_per_replica
    assert limit >= cache_gib * GIB + decoded + pinned + processes * 2 * GIB + verdict.host.shared_memory_bytes


@pytest.mark.parametrize(
    ("model", "profiled", "elongated"),
    [("deepseek-ai/DeepSeek-OCR", (1024, 1024), (640, 3840)), ("LiquidAI/LFM2-VL-1.6B", (512, 512), (2560, 512))],
)
def test_a_server_that_has_started_takes_images_larger_than_the_one_that_it_profiled(
    model: str, profiled: tuple[int, int], elongated: tuple[int, int]
) -> None:
    """vllm-project/vllm#48469, #54380: ready, then out of memory at the first item larger than the profiled one."""
    rule = situations.rule_of(model)
    most, counted = rule.maximum(), rule.count_image(*elongated)
    assert isinstance(counted, ImageTokens)
    assert counted.embed_tokens > most.engine_tokens
    assert counted.vit_patches > most.dummy_patches
    plans = [plan(declare(model, pictures(size), accelerators={"allowed": ["l4"]})) for size in (profiled, elongated)]
    beside = [verdict.memory.part("outside budget").size_bytes for verdict in plans if isinstance(verdict, Plan)]
    assert beside[1] > beside[0] + 100 * MIB
    tight = situations.gpu_of("l4", engine_memory_bytes=10 * GIB, driver_memory_bytes=10 * GIB)
    verdict = plan(declare(model, pictures(elongated)), Inventory(shapes=(NodeShape(gpu=tight, gpus_per_node=1),)))
    assert isinstance(verdict, Plan)
    assert verdict.flags.gpu_memory_utilization_percent < 92  # the default would leave too little
    outside = verdict.memory.part("outside budget").size_bytes
    assert outside <= tight.engine_memory_bytes * (100 - verdict.flags.gpu_memory_utilization_percent) / 100


def test_a_container_that_outgrew_its_host_memory_is_not_said_to_lack_gpu_memory() -> None:
    """The same reports: the kubelet says OOMKilled with 137."""
    killed = PodTrouble(pod="case-0", reason="OOMKilled", restarts=2)
    observed = Observation(deployment_present=True, desired_replicas=1, terminated=(killed,))
    verdict = available_verdict(observed, suspended=False)
    assert (verdict.status, verdict.reason) == ("False", "HostOOM")
    assert "limit of host memory" in verdict.message


def test_the_235b_on_eight_80_gb_cards_depends_on_what_videos_reserve_and_never_on_a_recipe() -> None:
    """QwenLM/Qwen3-VL#1684, #1489, #1493: 8 × A100-80GB, context 128,000, out of memory.

    Releases of that time profiled a video of 153,600 tokens; 0.33.0 profiles 12,288, so it starts there today.
    """
    card = situations.gpu_of("a100-80gb-sxm")
    flags = LaunchFlags(tensor_parallel_size=8, max_model_len=128_000)
    today = serve(QWEN_235B, card, flags=flags, videos=1).launch()
    assert isinstance(today, Launched)
    assert today.begun.misfit is None
    assert today.begun.likely.need.weights.total / 1e9 == pytest.approx(59, rel=0.01)
    then = dataclasses.replace(today.request, engine_tokens=153_600, dummy_patches=4 * 153_600)
    refused = start_up(then, memory_calibration())
    assert refused.misfit is not None
    assert "weights 55.1 GiB per GPU" in refused.misfit.message
    nearest = start_up(dataclasses.replace(then, gpu=situations.gpu_of("h200-sxm")), memory_calibration())
    assert nearest.misfit is None
    assert nearest.cache.tokens > 128_000
    images_only = serve(QWEN_235B, card, flags=flags).launch()
    assert isinstance(images_only, Launched)
    assert images_only.begun.misfit is None
    assert images_only.begun.cache.tokens > 128_000
