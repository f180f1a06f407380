"""Plan + spec -> the arguments of ``vllm serve`` 0.33.0, as a list.

The image's entry point is ``vllm serve``, so the list starts with the model. Integers are plain (the engine
reads ``32k`` and ``32K`` differently), JSON is compact and sorted, and nothing is left to a default that
depends on the GPU or on the repository of the model. Every number comes from the plan. Called by ``context``
and ``vlmctl``.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.api.spec import Model, VLMDeploymentSpec
from vlm_operator.render.timing import SHUTDOWN_SECONDS
from vlm_operator.sizing.plan import Plan, ServerFlags

WEIGHTS_PATH: Final = "/models"
"""Where a claim with weights is mounted."""
_MODALITIES: Final = ("image", "video", "audio")
"""A modality that is not named keeps the engine's limit of 999 and its share of the encoder budget."""


def render_engine_args(spec: VLMDeploymentSpec, plan: Plan) -> list[str]:
    """Return the arguments of the container, the model first, what the user adds last."""
    return [
        model_location(spec.model, plan),
        *_identity_args(spec.model, plan),
        *_capacity_args(plan.flags),
        *_parallel_args(plan.flags),
        *_multimodal_args(plan.flags),
        *("--shutdown-timeout", str(SHUTDOWN_SECONDS)),
        *plan.flags.extra_args,
    ]


def model_location(model: Model, plan: Plan) -> str:
    """Return what the engine loads: the hub id that was planned, or the folder on the claim with the weights."""
    claim = model.storage.persistent_volume_claim if model.storage else None
    if claim is None:
        return plan.model_id
    return f"{WEIGHTS_PATH}/{claim.path}" if claim.path else WEIGHTS_PATH


def compact_json(value: Any) -> str:
    """Return ``value`` as sorted JSON without spaces; read-only mappings and tuples included."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def limit_mm_per_prompt(flags: ServerFlags) -> dict[str, Any]:
    """Return the limits with every modality named; what the plan does not mention is 0."""
    return {**dict.fromkeys(_MODALITIES, 0), **flags.limit_mm_per_prompt}


def _identity_args(model: Model, plan: Plan) -> list[str]:
    """Name the model for clients as they know it, whatever checkpoint is served under the name.

    Sampling defaults are the engine's, not a file's in the repository.
    """
    args = ["--served-model-name", model.id, "--generation-config", "vllm"]
    revision = plan.model_revision or model.revision
    if revision and model_location(model, plan) == model.id:
        args += ["--revision", revision]
    if model.trust_remote_code and plan.flags.trust_remote_code:
        args.append("--trust-remote-code")
    return args


def _capacity_args(flags: ServerFlags) -> list[str]:
    args = [
        *("--max-model-len", str(flags.max_model_len)),
        *("--max-num-seqs", str(flags.max_num_seqs)),
        *("--max-num-batched-tokens", str(flags.max_num_batched_tokens)),
        *("--gpu-memory-utilization", f"{flags.gpu_memory_utilization_percent / 100:.2f}"),
        *("--dtype", flags.dtype),
    ]
    if flags.kv_cache_dtype != "auto":
        args += ["--kv-cache-dtype", flags.kv_cache_dtype]
    return args


def _parallel_args(flags: ServerFlags) -> list[str]:
    return [
        *("--tensor-parallel-size", str(flags.tensor_parallel_size)),
        *("--mm-encoder-tp-mode", flags.encoder_parallel_mode),
    ]


def _multimodal_args(flags: ServerFlags) -> list[str]:
    args = [
        *("--limit-mm-per-prompt", compact_json(limit_mm_per_prompt(flags))),
        *("--mm-processor-cache-gb", str(flags.mm_processor_cache_gib)),
    ]
    if flags.mm_processor_kwargs:
        args += ["--mm-processor-kwargs", compact_json(flags.mm_processor_kwargs)]
    if flags.hf_overrides:
        args += ["--hf-overrides", compact_json(flags.hf_overrides)]
    return args


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
