"""The answer of ``vlmctl memory`` for programs. Sizes are whole MiB, named as in the status of a VLMDeployment."""

from typing import Any

from vlm_operator.cli.memory_answer import Asked, spare_bytes, worst_end
from vlm_operator.cli.memory_changes import Change, find_changes
from vlm_operator.planning import ENGINE_VERSION
from vlm_operator.report.status_plan import whole_mebibytes
from vlm_operator.sizing.kv_cache import KVCachePlan
from vlm_operator.sizing.launch import Launched, LaunchRefusal
from vlm_operator.units import MIB


def memory_document(asked: Asked, launched: Launched | LaunchRefusal) -> dict[str, Any]:
    """Return everything that the screen shows."""
    head = {
        "model": asked.card.id,
        "accelerator": asked.gpu.product,
        "engineVersion": ENGINE_VERSION,
        "configurationCertainty": asked.card.config_provenance.certainty,
    }
    why = launched if isinstance(launched, LaunchRefusal) else launched.begun.misfit
    if why is None:
        verdict: dict[str, Any] = {"starts": True}
    else:
        changes = [_change(change) for change in find_changes(asked, launched)]
        verdict = {"starts": False, "reason": why.reason, "message": why.message, "changes": changes}
    return {**head, **verdict, **({} if isinstance(launched, LaunchRefusal) else _figures(asked, launched))}


def _change(change: Change) -> dict[str, Any]:
    return {
        "change": change.words,
        "options": dict(change.options),
        "spareMebibytes": change.spare_bytes // MIB,
        "kvCacheTokens": change.kv_cache_tokens,
    }


def _figures(asked: Asked, launched: Launched) -> dict[str, Any]:
    gpu, host = asked.gpu, launched.begun.host
    return {
        "flags": _flags(asked, launched),
        "gpuMemory": {
            "driverMebibytes": gpu.driver_memory_bytes // MIB,
            "engineMebibytes": gpu.engine_memory_bytes // MIB,
            "certainty": gpu.engine_memory_certainty,
        },
        "memoryPerGPU": _parts(launched),
        "kvCache": _caches(launched),
        "encoder": {
            "budgetTokens": launched.budget.tokens,
            "modality": launched.modality,
            "items": launched.budget.items_per_batch,
            "tokensPerItem": launched.request.engine_tokens,
        },
        "host": {
            "cpu": host.cpu_cores,
            "memoryMebibytes": host.memory_bytes // MIB,
            "sharedMemoryMebibytes": host.shared_memory_bytes // MIB,
        },
    }


def _flags(asked: Asked, launched: Launched) -> dict[str, Any]:
    request, settings = launched.request, asked.model.rule.settings
    return {
        "tensorParallelSize": request.tensor_parallel_size,
        "encoderParallelMode": request.encoder_mode,
        "maxModelLen": request.max_model_len,
        "maxNumSeqs": request.max_num_seqs,
        "maxNumBatchedTokens": request.max_num_batched_tokens,
        "gpuMemoryUtilizationPercent": request.utilization_percent,
        "kvCacheDtype": asked.flags.kv_cache_dtype,
        "imagesPerPrompt": asked.flags.images_per_prompt,
        "videosPerPrompt": asked.flags.videos_per_prompt,
        "mmProcessorKwargs": dict(settings.mm_processor_kwargs),
        "hfOverrides": dict(settings.hf_overrides),
    }


def _parts(launched: Launched) -> list[dict[str, Any]]:
    """Return the parts of the waterfall, which sum to the GPU, with each part's own pessimistic end."""
    memory = launched.begun.memory
    worst = {part["part"]: part["mebibytes"] for part in whole_mebibytes(worst_end(launched))}
    return [
        {**share, "mebibytesAtWorst": worst[share["part"]], "certainty": part.certainty, "note": part.note}
        for share, part in zip(whole_mebibytes(memory), memory.parts, strict=True)
    ]


def _caches(launched: Launched) -> dict[str, Any]:
    begun = launched.begun
    return {
        "likely": _cache(begun.likely_cache, begun.likely.kv_available_bytes),
        "atWorst": _cache(begun.cache, begun.pessimistic.kv_available_bytes),
        "neededMebibytes": begun.cache.min_available_bytes // MIB,
        "spareMebibytes": spare_bytes(launched) // MIB,
        "blockSize": begun.cache.block_size,
    }


def _cache(cache: KVCachePlan, available_bytes: int) -> dict[str, Any]:
    return {
        "mebibytes": max(0, available_bytes) // MIB,
        "tokens": cache.tokens,
        "longestRequests": round(cache.concurrency, 2),
    }
