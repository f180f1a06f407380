"""Plan | NoFit -> the numbers and words of status: ``plan``, ``estimate``, ``noFit``, ``summary`` ...

Called by ``conditions.build_status`` and by ``vlmctl plan --output json``. Everything is an integer with its
unit in the field's name, or a string for people; bytes, seconds and fractions end here.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.sizing.memory import MemoryBreakdown
from vlm_operator.sizing.plan import Alternative, NoFit, Percentiles, Plan, Rejection
from vlm_operator.units import GIB, MIB, ceil_div, format_mebibytes

HEADROOM: Final = "headroom"
_MOST_ALTERNATIVES: Final = 5
_MOST_SUGGESTIONS: Final = 16
_UNKNOWN: Final = "-"
_CERTAINTY_OF_EVIDENCE: Final = {"runs": "Calibrated", "kernels": "Calibrated", "datasheet": "Datasheet"}


def plan_status(plan: Plan) -> dict[str, Any]:
    """Return ``plan``, ``estimate``, ``alternatives`` and ``summary`` of a plan."""
    return {
        "plan": {"digest": plan_digest(plan), **_plan_fields(plan)},
        "estimate": _estimate(plan),
        "alternatives": [_alternative(other) for other in plan.alternatives[:_MOST_ALTERNATIVES]],
        "summary": _plan_summary(plan),
    }


def no_fit_status(no_fit: NoFit) -> dict[str, Any]:
    """Return ``noFit``, with the nearest misses and what would make it fit, and ``summary``."""
    return {
        "noFit": {
            "reason": no_fit.reason,
            "message": no_fit.message,
            "candidates": no_fit.candidates,
            "nearest": [_near_miss(rejection) for rejection in no_fit.nearest[:_MOST_ALTERNATIVES]],
            "suggestions": [str(change) for change in no_fit.suggestions[:_MOST_SUGGESTIONS]],
        },
        "summary": empty_summary(no_fit.reason),
    }


def empty_summary(reason: str) -> dict[str, str]:
    """Return the summary of a resource without a plan."""
    return {
        "accelerator": _UNKNOWN,
        "headroom": _UNKNOWN,
        "hourlyCost": _UNKNOWN,
        "imageTokens": _UNKNOWN,
        "ready": _UNKNOWN,
        "reason": reason,
    }


def plan_digest(plan: Plan) -> str:
    """Return the SHA-256 of everything that the pods are made of: equal digests mean equal pods.

    That is ``status.plan`` and the values that status has no room for. What is only estimated does not count,
    but for the weights in whole GiB, which say how long a pod may take to start.
    """
    flags = plan.flags
    weights = sum(part.size_bytes for part in plan.memory.parts if part.name.startswith("weights"))
    unreported = {
        "limitMMPerPrompt": flags.limit_mm_per_prompt,
        "mmProcessorKwargs": flags.mm_processor_kwargs,
        "hfOverrides": flags.hf_overrides,
        "mmProcessorCacheGibibytes": flags.mm_processor_cache_gib,
        "trustRemoteCode": flags.trust_remote_code,
        "weightsGibibytes": ceil_div(weights, GIB),
    }
    if flags.extra_args:
        unreported["extraArgs"] = flags.extra_args
    return canonical_digest({**_plan_fields(plan), **unreported})


def spec_digest(spec: VLMDeploymentSpec) -> str:
    """Return the SHA-256 of the spec as the user wrote it: defaults do not count, so no operator upgrade changes it."""
    return canonical_digest(spec.model_dump(mode="json", by_alias=True, exclude_unset=True))


def canonical_digest(value: Mapping[str, Any]) -> str:
    """Return the hexadecimal SHA-256 of ``value`` as sorted, compact JSON; read-only mappings included."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


def whole_mebibytes(memory: MemoryBreakdown) -> list[dict[str, Any]]:
    """Return the parts in whole MiB; headroom, the last, takes the rounding, so they sum to the total."""
    total = memory.total_bytes // MIB
    sizes = [round(part.size_bytes / MIB) for part in memory.parts[:-1]]
    sizes.append(total - sum(sizes))
    return [{"part": part.name, "mebibytes": size} for part, size in zip(memory.parts, sizes, strict=True)]


def format_accelerator(gpu: str, count: int) -> str:
    """Return for example ``2 x H100-80GB``; the vendor's name is left out."""
    return f"{count} x {gpu.removeprefix('NVIDIA ').replace(' ', '-')}"


def format_cost(hourly_cents: float | None) -> str:
    """Return cents per hour as a price such as ``4.20``, or ``-`` where the price is unknown."""
    return _UNKNOWN if hourly_cents is None else f"{hourly_cents / 100:.2f}"


def _plan_fields(plan: Plan) -> dict[str, Any]:
    flags = plan.flags
    fields = {
        "model": plan.model_id,
        "quantization": plan.quantisation,
        "engineVersion": plan.engine_version,
        "accelerator": plan.gpu.product,
        "gpusPerReplica": plan.gpus_per_replica,
        "tensorParallelSize": flags.tensor_parallel_size,
        "replicas": plan.replicas,
        "maxModelLen": flags.max_model_len,
        "maxNumSeqs": flags.max_num_seqs,
        "maxNumBatchedTokens": flags.max_num_batched_tokens,
        "imagesPerPrompt": plan.images_per_prompt,
        "gpuMemoryUtilizationPercent": flags.gpu_memory_utilization_percent,
        "dtype": flags.dtype,
        "kvCacheDtype": flags.kv_cache_dtype,
        "encoderParallelMode": flags.encoder_parallel_mode,
        "cpu": plan.host.cpu_cores,
        "hostMemory": format_mebibytes(plan.host.memory_bytes),
        "sharedMemory": format_mebibytes(plan.host.shared_memory_bytes),
    }
    if plan.model_revision:
        fields["modelRevision"] = plan.model_revision
    return fields | _cap(plan)


def _cap(plan: Plan) -> dict[str, Any]:
    if plan.cap_value is None:
        return {}
    cap: dict[str, Any] = {"capName": plan.cap_name, "capValue": plan.cap_value}
    return {**cap, "maxPixels": plan.cap_value} if plan.cap_name == "max_pixels" else cap


def _estimate(plan: Plan) -> dict[str, Any]:
    tokens, latency = plan.tokens, plan.latency
    estimate: dict[str, Any] = {
        "imageTokens": {"p50": tokens.image_p50, "p99": tokens.image_p99, "max": tokens.image_max},
        "requestTokens": {"p50": tokens.request_p50, "p99": tokens.request_p99, "max": tokens.request_max},
        "memoryPerGPU": whole_mebibytes(plan.memory),
        "kvCacheTokens": plan.kv_cache_tokens,
        "concurrentRequests": plan.concurrent_requests,
        "ttftMilliseconds": _milliseconds(latency.ttft),
        "tpotMilliseconds": _milliseconds(latency.tpot),
        "requestLatencyMilliseconds": _milliseconds(latency.request),
        "requestsPerMinutePerReplica": math.floor(latency.requests_per_minute_per_replica),
        "bindingConstraint": plan.binding_constraint,
        "certainty": certainty_word(plan),
    }
    if plan.hourly_cents is not None:
        estimate["hourlyCostCents"] = math.ceil(plan.hourly_cents)
    if plan.cents_per_thousand_images is not None:
        estimate["costCentsPerThousandImages"] = math.ceil(plan.cents_per_thousand_images)
    return estimate


def certainty_word(plan: Plan) -> str:
    """Return the weakest class of number that the plan rests on, as the contract calls it.

    Before a plan has run no more can be said than that its GPU was measured, which is Calibrated.
    """
    return "Remembered" if plan.certainty == "remembered" else _CERTAINTY_OF_EVIDENCE[plan.latency.evidence]


def _milliseconds(seconds: Percentiles) -> dict[str, int]:
    return {
        "p50": math.ceil(seconds.p50 * 1000),
        "p95": math.ceil(seconds.p95 * 1000),
        "p99": math.ceil(seconds.p99 * 1000),
    }


def _alternative(other: Alternative) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "accelerator": other.gpu,
        "gpusPerReplica": other.gpus_per_replica,
        "tensorParallelSize": other.tensor_parallel_size,
        "replicas": other.replicas,
        "verdict": "Fits" if other.fits else "DoesNotFit",
        "reason": other.reason,
        "message": other.message,
    }
    if other.hourly_cents is not None:
        fields["hourlyCostCents"] = math.ceil(other.hourly_cents)
    return fields


def _near_miss(rejection: Rejection) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "accelerator": rejection.gpu,
        "gpusPerReplica": rejection.gpus_per_replica,
        "verdict": "DoesNotFit",
        "reason": rejection.reason,
        "message": rejection.message,
    }
    if rejection.hourly_cents is not None:
        fields["hourlyCostCents"] = math.ceil(rejection.hourly_cents)
    return fields


def _plan_summary(plan: Plan) -> dict[str, str]:
    return {
        "accelerator": format_accelerator(plan.gpu.display_name, plan.gpus_per_replica),
        "headroom": _headroom(plan.memory),
        "hourlyCost": format_cost(plan.hourly_cents),
        "imageTokens": str(plan.tokens.image_p99),
        "ready": f"0/{plan.replicas}",
        "reason": "Planned",
    }


def _headroom(memory: MemoryBreakdown) -> str:
    size = memory.parts[-1].size_bytes / GIB
    return f"{size:.0f} GiB" if size >= 10 else f"{size:.1f} GiB"
