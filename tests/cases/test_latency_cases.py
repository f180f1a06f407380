"""Public reports about speed, estimates and cost: the situation in, the answer and its named reason out."""

from typing import Any

import pytest

from tests.cases.situations import declare, flags_of, gpu_of, pictures, plan, rule_of, serve, shape_of
from vlm_operator.errors import InputError
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing.inventory import Inventory, NodeShape
from vlm_operator.sizing.kv_cache import kv_bytes_per_token
from vlm_operator.sizing.launch import Launched, LaunchFlags
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.tokens.types import ImageTokens
from vlm_operator.sizing.weights import weights_per_rank
from vlm_operator.units import GIB

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN2_72B = "Qwen/Qwen2-VL-72B-Instruct"
QWEN_30B = "Qwen/Qwen3-VL-30B-A3B-Instruct"
INTERN_1B = "OpenGVLab/InternVL3_5-1B"
QWEN36 = "Qwen/Qwen3.6-35B-A3B"
CAP = 1280 * 28 * 28
PAGES = pictures((1786, 2526), count=4)


def quick(model: str, images: dict[str, Any], size: int | None = None, **spec: Any) -> Plan:
    """Return the plan by closed formulas, on ``size`` GPUs per replica."""
    resource = declare(model, images, **spec)
    verdict = plan_deployment(resource.spec, catalogue_inventory(), tensor_parallel_size=size, simulate=False)
    assert isinstance(verdict, Plan), verdict.message
    return verdict


def sure(model: str, images: dict[str, Any], **spec: Any) -> Plan:
    verdict = plan(declare(model, images, **spec))
    assert isinstance(verdict, Plan), verdict.message
    return verdict


def said(planned: Plan, words: str) -> str:
    """Return the reason with these words, empty where there is none."""
    return next((reason for reason in planned.reasons if words in reason), "")


def test_preparation_that_starves_a_gpu_asks_for_cores_and_not_for_gpus() -> None:
    """QwenLM/Qwen3-VL#1378, vllm-project/vllm#21873: CPU 100 %, GPU 20 %, one A100-40GB, 13 clips a minute."""
    on_a100: dict[str, Any] = {"accelerators": {"allowed": ["a100-40gb-sxm"], "maxPerReplica": 1}}
    short = {"tokens": {"p50": 40, "max": 80}}
    frames = sure(
        QWEN_7B,
        pictures((640, 360), count=30),
        workload={"traffic": {"requestsPerMinute": 13}, "output": short},
        **on_a100,
    )
    assert (frames.replicas, frames.gpus_per_replica) == (1, 1)
    assert frames.traffic is not None
    assert frames.traffic.utilisation < 0.5  # the GPU idles here as well
    assert frames.flags.max_num_batched_tokens > 2048
    photographs: dict[str, Any] = {"quality": {"minPixelsPerImage": CAP}, **on_a100}
    cores, prepared = [], []
    for rate in (6, 30, 60):
        planned = sure(
            QWEN_7B,
            pictures((4032, 3024), count=4),
            workload={"traffic": {"requestsPerMinute": rate}, "output": short},
            **photographs,
        )
        assert (planned.replicas, planned.gpus_per_replica) == (1, 1)
        cores.append(planned.host.cpu_cores)
        prepared.append(said(planned, "for the CPU that prepares its images"))
    assert cores == sorted(cores)
    assert cores[0] < cores[-1]
    assert all("smaller images or a lower cap help more than faster GPUs" in words for words in prepared)
    with pytest.raises(InputError, match="video"):  # clips themselves are not sized, and nothing pretends so
        plan(declare(QWEN_7B, pictures((640, 360)), engine={"extraArgs": ['--limit-mm-per-prompt={"video":1}']}))


def test_document_pages_are_late_on_the_cpu_and_the_verdict_says_so() -> None:
    """vllm-project/vllm#44688, #44787, #15869, #24519: 4 pages of 1786 × 2526, TTFT of tens of seconds."""
    counted = rule_of(QWEN36).count_image(1786, 2526)
    assert isinstance(counted, ImageTokens)
    assert counted.embed_tokens == 4424
    limits: dict[str, Any] = {"accelerators": {"allowed": ["rtx-pro-6000-blackwell-server"]}}
    crowded = sure(QWEN36, PAGES, running=72, **limits)
    assert crowded.latency.ttft.p95 > 10
    assert "for the CPU that prepares its images" in said(crowded, "a typical request alone waits")
    fast: dict[str, Any] = {"objectives": {"ttft": {"percentile": 95, "milliseconds": 1500}}}
    verdict = plan(declare(QWEN36, PAGES, running=8, **fast, **limits))
    assert isinstance(verdict, NoFit)
    assert verdict.nearest[0].reason == "Latency"
    assert "of it on the CPU that prepares images" in verdict.nearest[0].message
    offered = [str(change) for change in verdict.suggestions]
    assert any("max_pixels" in words and "quality.minPixelsPerImage" in words for words in offered)
    small = sure(INTERN_1B, pictures((1024, 1024)), running=64, accelerators={"allowed": ["h100-80gb-sxm"]})
    assert "for the CPU that prepares its images" in said(small, "a typical request alone waits")


@pytest.mark.parametrize(
    ("model", "images", "gpu", "size", "running"),
    [
        ("OpenGVLab/InternVL3-8B", pictures((1024, 1024), count=4), "h100-80gb-sxm", 2, 64),
        (QWEN_30B, pictures((1024, 980), count=4), "l40s", 4, 16),
        ("Qwen/Qwen2-VL-7B-Instruct", pictures((1024, 980), count=4), "l40s", 2, 64),
    ],
)
def test_whole_images_on_each_gpu_serve_more_and_the_whole_tower_is_charged(
    model: str, images: dict[str, Any], gpu: str, size: int, running: int
) -> None:
    """vllm-project/vllm#23909, #24955, #25445: 7.36 → 10.12 requests/s with --mm-encoder-tp-mode data."""

    def encoded(*arguments: str) -> Plan:
        limits: dict[str, Any] = {"accelerators": {"allowed": [gpu]}, "engine": {"extraArgs": list(arguments)}}
        return quick(model, images, size, running=running, **limits)

    chosen = encoded()
    split, whole = (encoded(f"--mm-encoder-tp-mode={mode}") for mode in ("weights", "data"))
    assert chosen.flags.encoder_parallel_mode == "data"
    served = [planned.latency.requests_per_minute_per_replica for planned in (split, whole)]
    assert served[1] > served[0]
    tower = weights_per_rank(shape_of(model), 1).encoder
    assert whole.memory.part("weights, vision").size_bytes == pytest.approx(tower, rel=0.02)
    assert split.memory.part("weights, vision").size_bytes < 0.6 * tower


def test_the_overhead_grows_with_the_weights_and_a_latent_cache_is_not_divided() -> None:
    """kaito-project/kaito#2132, #2139: a flat 2.3 GiB and MLA divided by TP promised 1,048,576 of 810,208 tokens."""
    overheads = []
    for model, size in ((QWEN_7B, 1), ("Qwen/Qwen2.5-VL-32B-Instruct", 1), (QWEN2_72B, 2)):
        flags = LaunchFlags(max_model_len=17_000, tensor_parallel_size=size)
        launched = serve(model, gpu_of("h100-94gb-nvl"), flags=flags).launch()
        assert isinstance(launched, Launched)
        begun = launched.begun.likely
        overheads.append((begun.budget_bytes - begun.need.weights.total - begun.kv_available_bytes) / GIB)
    assert overheads == sorted(overheads)
    assert overheads[0] > 2.3
    assert overheads[-1] > 5.5  # on two cards of that SKU
    latent = shape_of("deepseek-ai/deepseek-vl2")
    grouped = shape_of(QWEN_7B)
    assert kv_bytes_per_token(latent, 1) == kv_bytes_per_token(latent, 2) == kv_bytes_per_token(latent, 4)
    assert kv_bytes_per_token(grouped, 1) == 4 * kv_bytes_per_token(grouped, 4)


@pytest.mark.parametrize("gpu", ["a10g", "l4"])
def test_the_7b_fits_a_24_gb_card_with_images_of_a_megapixel(gpu: str) -> None:
    """modular/modular#6254, gpustack/gpustack#4583, #3600: refused for 15.45 + a fixed 5.0 GiB > 19.63."""
    planned = sure(
        QWEN_7B,
        pictures((1000, 1000)),
        accelerators={"allowed": [gpu], "maxPerReplica": 1},
        engine={"extraArgs": ["--max-model-len=8192"]},
    )
    assert planned.flags.max_model_len == 8192
    assert planned.memory.part("activations").size_bytes < 5 * GIB


def test_the_encoders_peak_grows_with_the_cap_and_is_no_constant() -> None:
    """The same reports: a constant for vision refuses good hardware."""
    peaks = []
    for sides in (48, 64, 90, 110, 128):  # above the step, so that one image makes the peak
        pixels = (28 * sides) ** 2
        flags = LaunchFlags(max_model_len=17_000, max_num_batched_tokens=2048)
        launched = serve(QWEN_7B, gpu_of("h100-80gb-sxm"), flags=flags, max_pixels=pixels).launch()
        assert isinstance(launched, Launched)
        peaks.append(launched.begun.likely.need.activations.encoder)
    assert peaks == sorted(peaks)
    assert len(set(peaks)) == len(peaks)


def test_screenshots_on_a_72b_take_four_80_gb_cards_and_never_99_percent_of_them() -> None:
    """bytedance/UI-TARS#15: what do I need? 144 GB of weights, more than 160 GB, 4 × A100-80GB, TP4."""
    screens = pictures((1920, 1080), count=5)
    cards = {"allowed": ["a100-80gb-sxm"]}
    planned = sure(QWEN2_72B, screens, running=4, accelerators=cards)
    assert (planned.replicas, planned.gpus_per_replica) == (1, 4)
    assert planned.memory.part("weights").size_bytes * 4 / 1e9 > 140
    assert planned.kv_cache_tokens > 4 * planned.tokens.request_max
    assert planned.concurrent_requests >= 4
    assert planned.flags.gpu_memory_utilization_percent <= 92
    two = sure(QWEN2_72B, screens, running=4, accelerators={**cards, "maxPerReplica": 2})
    assert two.concurrent_requests == 1  # what the hacks of the thread buy, at eight cards for four requests
    assert two.tight_kv_cache
    assert two.gpus_per_replica * two.replicas > planned.gpus_per_replica
    small = gpu_of("l4", engine_memory_bytes=int(16.5 * GIB))
    node = Inventory(shapes=(NodeShape(gpu=small, gpus_per_node=1),))
    refused = plan(declare("Qwen/Qwen2-VL-7B-Instruct", screens), node)
    assert isinstance(refused, NoFit)
    assert "weights" in refused.message


@pytest.mark.parametrize(
    ("model", "width", "height", "kwargs", "tokens"),
    [
        (QWEN_7B, 1024, 1024, {}, 1369),
        ("Qwen/Qwen2-VL-7B-Instruct", 1024, 1024, {}, 1369),
        ("Qwen/Qwen3-VL-8B-Instruct", 1024, 1024, {}, 1024),
        (QWEN_7B, 1362, 1724, {}, 3038),
        (QWEN_7B, 2488, 2048, {}, 6497),
        (QWEN_7B, 4000, 3000, {}, 15_301),
        (QWEN_7B, 4000, 3000, {"max_pixels": CAP}, 1230),
        ("Qwen/Qwen3-VL-8B-Instruct", 1275, 1650, {}, 2080),
    ],
)
def test_tokens_are_counted_with_the_familys_own_resize_and_merge(
    model: str, width: int, height: int, kwargs: dict[str, int], tokens: int
) -> None:
    """Sizing pages disagree four times over: 5,329 = 73² raw patches of 14 pixels, without the merge of 2 × 2."""
    counted = rule_of(model, **kwargs).count_image(width, height)
    assert isinstance(counted, ImageTokens)
    assert counted.embed_tokens == tokens
    assert tokens != 5329


def test_a_busy_tower_is_reported_and_above_70_percent_flagged() -> None:
    """ai-dynamo/aiconfigurator#1546, #729, ai-dynamo/dynamo#13466: encode load scales in images, not in tokens."""
    limits: dict[str, Any] = {"accelerators": {"allowed": ["h100-80gb-sxm"], "maxPerReplica": 1}}
    shares = []
    for side, rate in ((500, 60), (3500, 600)):
        workload = {"traffic": {"requestsPerMinute": rate}, "output": {"tokens": {"p50": 4, "max": 8}}}
        planned = quick("Qwen/Qwen2-VL-2B-Instruct", pictures((side, side)), workload=workload, **limits)
        words = said(planned, "the vision tower takes")
        shares.append(int(words.split("takes ")[1].split(" %")[0]))
        assert ("encoding apart from decoding would pay" in words) == (shares[-1] > 70)
    assert shares[0] < 70 < shares[1]
    blackwell = sure(
        "Qwen/Qwen3.5-122B-A10B",
        pictures((1024, 1024), count=5),
        workload={"output": {"tokens": {"p50": 1024, "max": 1024}}},
        accelerators={"allowed": ["b200-sxm"]},
    )
    assert said(blackwell, "the vision tower takes")
    tower_of_12_heads: dict[str, Any] = {
        "accelerators": {"allowed": ["l40s"]},
        "engine": {"extraArgs": ["--tensor-parallel-size=8"]},
    }
    planned = sure("zai-org/GLM-4.1V-9B-Thinking", pictures((448, 448)), **tower_of_12_heads)
    assert planned.flags.encoder_parallel_mode == "data"  # 8 ranks divide the language model, but not the tower
    split: dict[str, Any] = {
        **tower_of_12_heads,
        "engine": {"extraArgs": ["--tensor-parallel-size=8", "--mm-encoder-tp-mode=weights"]},
    }
    refused = plan(declare("zai-org/GLM-4.1V-9B-Thinking", pictures((448, 448)), **split))
    assert isinstance(refused, NoFit)
    assert "12 vision tower heads" in refused.message


def test_cost_follows_the_length_of_the_answers() -> None:
    """bayis.co.uk on one RTX 3060: the same prompt is answered in 16.3, 61.1, 108.6 or 195.7 tokens."""
    costs, served = [], []
    for tokens in (16, 61, 109, 196):
        workload = {
            "traffic": {"requestsPerMinute": 3000},
            "output": {"tokens": {"p50": tokens, "max": tokens}},
        }
        planned = quick(QWEN_7B, pictures((640, 480)), 1, workload=workload, accelerators={"allowed": ["l4"]})
        costs.append(planned.hourly_cents or 0.0)
        served.append(planned.latency.requests_per_minute_per_replica)
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]
    assert served == sorted(served, reverse=True)


def test_what_is_reserved_is_told_apart_from_what_is_needed() -> None:
    """vllm-project/vllm#17891: why does a 7B take 70 GB? At 0.25 and a context of 2,048 it does not."""
    card: dict[str, Any] = {"accelerators": {"allowed": ["a100-80gb-sxm"]}}
    usual = sure(QWEN_7B, pictures((640, 480)), **card)
    cache = next(limit for limit in usual.limits if limit.name == "KV cache")
    reserved = usual.memory.part("KV cache").size_bytes
    assert reserved > 40 * GIB
    assert reserved * cache.needed / cache.limit < GIB  # what the declared request needs of it
    assert "the KV cache holds" in said(usual, "requests of the 99th percentile for 1 that run")
    arguments = ["--gpu-memory-utilization=0.25", "--max-model-len=2048"]
    resource = declare(QWEN_7B, pictures((640, 480)), engine={"extraArgs": arguments}, **card)
    small = plan(resource)
    assert isinstance(small, Plan)
    assert flags_of(resource, small)["--gpu-memory-utilization"] == "0.25"
    assert small.memory.part("KV cache").size_bytes < 3 * GIB
    assert said(small, "as engine.extraArgs asks: --max-model-len 2048, --gpu-memory-utilization 0.25")
