"""Plans and resources that are valid as they are; a test changes one thing of them."""

from dataclasses import replace
from typing import Any, Final

from vlm_operator.api.validate import Resource, parse_resource
from vlm_operator.sizing.host import HostResources
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.memory import MemoryBreakdown, MemoryPart
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
    Suggestion,
    TokenFigures,
)
from vlm_operator.units import GIB, MIB

MODEL_ID: Final = "Qwen/Qwen2.5-VL-7B-Instruct"


def make_gpu(**changes: Any) -> GpuKind:
    """Return an L40S."""
    gpu = GpuKind(
        id="l40s-48gb",
        product="NVIDIA-L40S",
        display_name="L40S 48GB",
        vendor="nvidia",
        compute_capability=(8, 9),
        driver_memory_bytes=46068 * MIB,
        engine_memory_bytes=45457 * MIB + 17,
        engine_memory_certainty="measured",
        bandwidth_bytes_per_second=864e9,
        bf16_flops=362e12,
        fp8_flops=733e12,
        link_bytes_per_second=None,
        hourly_cents=86.0,
    )
    return replace(gpu, **changes)


def make_memory(total_bytes: int = 45457 * MIB + 17) -> MemoryBreakdown:
    """Return parts with sizes that are no whole MiB, the last of them headroom."""
    sizes = {
        "weights": 15 * GIB + 601 * MIB + 333_333,
        "encoder peak": 2 * GIB - 1,
        "CUDA graphs": 600 * MIB + 524_289,
        "outside budget": 900 * MIB + 7,
        "KV cache": 23 * GIB + 99 * MIB + 999_999,
    }
    parts = [MemoryPart(name=name, size_bytes=size) for name, size in sizes.items()]
    headroom = MemoryPart(name="headroom", size_bytes=total_bytes - sum(sizes.values()))
    return MemoryBreakdown(parts=(*parts, headroom))


def make_flags(**changes: Any) -> ServerFlags:
    """Return flags for one GPU and one image per request under a cap of 1,003,520 pixels."""
    flags = ServerFlags(
        tensor_parallel_size=1,
        max_model_len=6656,
        max_num_seqs=32,
        max_num_batched_tokens=8192,
        gpu_memory_utilization_percent=90,
        limit_mm_per_prompt={"image": {"count": 4, "width": 1036, "height": 952}, "video": 0},
        mm_processor_kwargs={"min_pixels": 3136, "max_pixels": 1_003_520},
        hf_overrides={},
        encoder_parallel_mode="weights",
        dtype="bfloat16",
        kv_cache_dtype="auto",
        mm_processor_cache_gib=4,
        trust_remote_code=False,
    )
    return replace(flags, **changes)


def make_tokens(**changes: Any) -> TokenFigures:
    """Return the figures of photographs under the cap."""
    share = ImageShare(
        width=4032, height=3024, share=1.0, tokens=1230, prompt_tokens=1232, resized=(1148, 840), tiles=None
    )
    figures = TokenFigures(
        images=(share,),
        image_p50=1230,
        image_p99=1260,
        image_max=1260,
        request_p50=1712,
        request_p99=5948,
        request_max=6448,
    )
    return replace(figures, **changes)


def make_plan(**changes: Any) -> Plan:
    """Return two replicas of one L40S each."""
    gpu = changes.pop("gpu", make_gpu())
    plan = Plan(
        model_id=MODEL_ID,
        quantisation="none",
        engine_version="0.33.0",
        gpu=gpu,
        gpus_per_replica=1,
        replicas=2,
        flags=make_flags(),
        images_per_prompt=4,
        cap_name="max_pixels",
        cap_value=1_003_520,
        host=HostResources(cpu_cores=8, memory_bytes=32 * GIB, shared_memory_bytes=2 * GIB),
        memory=make_memory(gpu.engine_memory_bytes),
        kv_cache_tokens=432_000,
        tight_kv_cache=False,
        concurrent_requests=67,
        limits=(LimitCheck(name="context length", needed=6448, limit=6656),),
        tokens=make_tokens(),
        latency=make_latency(),
        hourly_cents=172.0,
        certainty="estimated",
        binding_constraint="KV cache",
        reasons=("the cheapest that meets every objective",),
        alternatives=(make_alternative(),),
        images_per_hour=7200.0,
    )
    return replace(plan, **changes)


def make_latency() -> LatencyEstimate:
    """Return seconds of a comfortable plan."""
    return LatencyEstimate(
        ttft=Percentiles(p50=0.41, p95=1.2, p99=1.9),
        tpot=Percentiles(p50=0.021, p95=0.029, p99=0.041),
        request=Percentiles(p50=3.6, p95=9.1, p99=11.0),
        requests_per_minute_per_replica=212.7,
        certainty="estimated",
        evidence="kernels",
        spread={"ttft": (0.7, 1.4), "tpot": (0.85, 1.2), "request_latency": (0.85, 1.25)},
    )


def make_alternative(**changes: Any) -> Alternative:
    """Return a dearer GPU that fits."""
    other = Alternative(
        gpu="H100 80GB",
        gpus_per_replica=1,
        tensor_parallel_size=1,
        replicas=1,
        hourly_cents=290.0,
        fits=True,
        reason="Dearer",
        message="meets all, 69 % dearer",
    )
    return replace(other, **changes)


def make_no_fit(**changes: Any) -> NoFit:
    """Return a model that is too large for everything."""
    rejection = Rejection(
        gpu="H100 80GB",
        gpus_per_replica=2,
        reason="KVCache",
        message="2 x H100 80GB: weights 68.4 GiB leave 1.9 GiB for KV cache; one request needs 3.3 GiB",
        shortfall_fraction=0.7,
        hourly_cents=580.0,
    )
    no_fit = NoFit(
        model_id="Qwen/Qwen2.5-VL-72B-Instruct",
        reason="NoFit",
        message="nothing in the inventory fits (18 candidates)",
        candidates=18,
        nearest=(rejection,),
        by_reason=(("Memory", 11),),
        suggestions=(Suggestion(words="4 GPUs instead of 2", changes={"accelerators.maxPerReplica": 4}),),
    )
    return replace(no_fit, **changes)


def make_document(name: str = "invoices", **spec: Any) -> dict[str, Any]:
    """Return a VLMDeployment as the API server shows it; ``spec`` replaces whole fields of its spec."""
    return {
        "apiVersion": "vlm-operator.dev/v1alpha1",
        "kind": "VLMDeployment",
        "metadata": {
            "name": name,
            "namespace": "documents",
            "uid": "9d1b1e6c-6a55-4a2a-9f3e-0f4a3c1f7b10",
            "generation": 3,
        },
        "spec": {
            "model": {"id": MODEL_ID, "revision": "cc594898137f460bfe9f0759e9844b3ce807cfb5"},
            "workload": {"images": {"sizes": [{"width": 4032, "height": 3024}]}},
            **spec,
        },
    }


def make_resource(name: str = "invoices", **spec: Any) -> Resource:
    """Return the resource of ``make_document``."""
    return parse_resource(make_document(name, **spec))
