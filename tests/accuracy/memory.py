"""Memory that the engine reports at start-up beside what the memory model predicts for the same flags.

Scored are logs of the engine V1 on NVIDIA GPUs whose flags, GPU and model are stated. The prediction is the product's
own estimate; what a release does differently from the one that the product knows is in ``releases.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.accuracy.benchmarks import PublishedRow, load_published
from tests.accuracy.encoder_profile import context, profile_encoder, takes_videos
from tests.accuracy.fields import UnclearRowError, number
from tests.accuracy.memory_logs import LogConditions, NotUnderstood, complete_log, read_conditions
from tests.accuracy.models import PublishedModel, find_published
from tests.accuracy.releases import SORTED_COPIES
from tests.accuracy.table import AccuracyRow
from vlm_operator.catalogue.load import memory_calibration
from vlm_operator.sizing.kv_cache import KVLayout, KVSettings, kv_layout, plan_kv_cache
from vlm_operator.sizing.memory import MemoryRequest, estimate_memory
from vlm_operator.sizing.memory_constants import End, MemoryConstants, constants_at
from vlm_operator.units import GIB

SECTION: Final = "memory"
KV_CACHE: Final = "KV cache"
WEIGHTS: Final = "weights"
ACTIVATIONS: Final = "activation peak"
GRAPHS: Final = "CUDA graphs"
KV_TOKENS: Final = "tokens in the logged cache"
PUBLISHED: Final = {
    KV_CACHE: "kv_cache_gib",
    WEIGHTS: "weights_gib",
    ACTIVATIONS: "activation_peak_gib",
    GRAPHS: "cuda_graph_est_gib",
}
"""What is compared, and the field of a published row that has it, in GiB."""

ROUNDING: Final = 0.005
"""Logs print two decimals, so a published figure is only known to half of the last one."""

ENDS: Final[tuple[End, ...]] = ("low", "value", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One end of the estimate under the conditions of a log, in GiB."""

    kv_cache: float
    weights: float
    activations: float
    graphs: float

    def figure(self, quantity: str) -> float:
        """Return the figure that is compared under ``quantity``."""
        return {
            KV_CACHE: self.kv_cache,
            WEIGHTS: self.weights,
            ACTIVATIONS: self.activations,
            GRAPHS: self.graphs,
        }[quantity]


def memory_rows(benchmarks: Path | None = None) -> Sequence[AccuracyRow]:
    """Return one row for each figure of the published start-up logs that the model predicts."""
    published = load_published("memory_logs", benchmarks)
    return tuple(row for log in published for row in compare_log(log))


def compare_log(log: PublishedRow) -> tuple[AccuracyRow, ...]:
    """Return the rows of one log; one unscored row that says why where it cannot be compared."""
    log = complete_log(log)
    try:
        return _compare_log(log)
    except UnclearRowError as unclear:
        return (_unscored(log, str(unclear)),)


def _compare_log(log: PublishedRow) -> tuple[AccuracyRow, ...]:
    conditions = read_conditions(log)
    if isinstance(conditions, NotUnderstood):
        return (_unscored(log, conditions.why),)
    model = find_published(str(log.get("model") or ""), conditions.max_pixels)
    if model is None:
        return (_unscored(log, "the model, or how its weights are stored, is not known"),)
    if model.shape.text.heads % conditions.tensor_parallel_size:
        return (_unscored(log, f"tp {conditions.tensor_parallel_size} does not divide the model's heads"),)
    ends = {end: predict(conditions, model, end) for end in ENDS}
    why_not = _why_not(log, conditions, model)
    if why_not:
        return (_unscored(log, why_not, ends["value"]),)
    rows = [_compare(log, name, ends) for name, field in PUBLISHED.items() if number(log, field)]
    layout = kv_layout(model.shape, _kv_settings(conditions))
    if number(log, "kv_tokens") and layout.group_count == 1 and not layout.has_states:
        rows.append(_compare_tokens(log, conditions, layout, context(conditions, model)))
    return tuple(rows)


def _why_not(log: PublishedRow, conditions: LogConditions, model: PublishedModel) -> str:
    """Return why a log that is understood is no measure of the model; empty where it is one."""
    if log.get("host") == "WSL2":
        return "WSL2 counts memory as used that was given back; clusters run Linux"
    if not number(log, PUBLISHED[KV_CACHE]):
        return str(log.get("outcome") or "the log gives no KV cache memory")
    if conditions.release.caps_video and conditions.profiled is None and takes_videos(conditions, model):
        return "the video that this release profiles with is not stated"
    return _contradicts_itself(log, conditions)


def predict(conditions: LogConditions, model: PublishedModel, end: End) -> Prediction:
    """Return one end of the product's estimate, with what the release does differently."""
    constants = _constants(conditions, end)
    request = _request(conditions, model)
    estimate = estimate_memory(request, constants)
    graphs = _graphs(conditions, request, constants)
    buffers = estimate.need.buffers_bytes
    if not conditions.release.keeps_request_state:
        buffers = estimate_memory(replace(request, max_num_seqs=0), constants).need.buffers_bytes
    charged = graphs if conditions.release.charges_graphs else 0
    loaded = estimate.need.weights.total + estimate.need.loader_residue_bytes
    peak = estimate.need.activations.peak
    taken = loaded + buffers + estimate.need.non_torch_bytes + peak + charged
    budget = conditions.gpu.engine_memory_bytes * conditions.utilization
    return Prediction(
        kv_cache=(budget - taken) / GIB, weights=loaded / GIB, activations=peak / GIB, graphs=graphs / GIB
    )


def _constants(conditions: LogConditions, end: End) -> MemoryConstants:
    constants = constants_at(memory_calibration(), end)
    if (
        conditions.release.sorts_logits and end != "low"
    ):  # the FlashInfer sampler, where it was installed, sorts nothing
        more = SORTED_COPIES - memory_calibration().sampler_copies.value
        constants = constants._replace(sampler_copies=constants.sampler_copies + more)
    if not conditions.release.symmetric_memory:
        constants = constants._replace(non_torch_fabric=constants.non_torch_parallel)
    return constants


def _request(conditions: LogConditions, model: PublishedModel) -> MemoryRequest:
    shape = model.shape
    if conditions.release.wide_pixels:
        shape = replace(shape, vision=replace(shape.vision, patch_row=2 * shape.vision.patch_row))
    if conditions.release.wide_rotary and model.video is not None:  # the towers of Qwen, whose positions are rotary
        shape = replace(shape, vision=replace(shape.vision, wide_rotary=True))
    profile = profile_encoder(conditions, model)
    return MemoryRequest(
        shape=shape,
        gpu=conditions.gpu,
        tensor_parallel_size=conditions.tensor_parallel_size,
        utilization_percent=round(conditions.utilization * 100),
        max_num_seqs=conditions.max_num_seqs,
        max_num_batched_tokens=conditions.max_num_batched_tokens,
        max_model_len=context(conditions, model),
        encoder_mode=conditions.encoder_mode,
        dummy_patches=profile.patches,
        engine_tokens=profile.tokens,
        items=profile.items,
    )


def _graphs(conditions: LogConditions, request: MemoryRequest, constants: MemoryConstants) -> int:
    if conditions.eager:
        return 0
    if conditions.largest_graph is not None:
        few = max(1, conditions.largest_graph // 2)
        request = replace(request, max_num_seqs=min(few, request.max_num_seqs))
    return estimate_memory(request, constants).need.cuda_graphs_bytes


def _compare(log: PublishedRow, quantity: str, ends: dict[End, Prediction]) -> AccuracyRow:
    figures = sorted(prediction.figure(quantity) for prediction in ends.values())
    return AccuracyRow(
        id=log["id"],
        section=SECTION,
        quantity=quantity,
        unit="GiB",
        source=log["source"],
        predicted=ends["value"].figure(quantity),
        published=number(log, PUBLISHED[quantity]),
        low=figures[0] - ROUNDING,
        high=figures[-1] + ROUNDING,
        better="higher" if quantity == KV_CACHE else "lower",
        labels=_labels(log),
    )


def _kv_settings(conditions: LogConditions) -> KVSettings:
    return KVSettings(
        tensor_parallel_size=conditions.tensor_parallel_size,
        capability=conditions.gpu.compute_capability or (0, 0),
        dtype=conditions.kv_dtype,
    )


def _compare_tokens(log: PublishedRow, conditions: LogConditions, layout: KVLayout, length: int) -> AccuracyRow:
    """Return the tokens that the logged memory holds: exact but for the two decimals of the log."""

    def tokens(gib: float) -> int:
        return plan_kv_cache(
            layout,
            max_model_len=length,
            max_in_flight_tokens=2 * conditions.max_num_batched_tokens,
            available_bytes=int(gib * GIB),
        ).tokens

    logged = number(log, PUBLISHED[KV_CACHE]) or 0.0
    return AccuracyRow(
        id=log["id"],
        section=SECTION,
        quantity=KV_TOKENS,
        unit="tokens",
        source=log["source"],
        predicted=tokens(logged),
        published=number(log, "kv_tokens"),
        low=tokens(logged - ROUNDING),
        high=tokens(logged + ROUNDING),
        labels=_labels(log),
    )


def _unscored(log: PublishedRow, why: str, prediction: Prediction | None = None) -> AccuracyRow:
    return AccuracyRow(
        id=log["id"],
        section=SECTION,
        quantity=KV_CACHE,
        unit="GiB",
        source=log["source"],
        predicted=prediction.kv_cache if prediction else None,
        published=_stated(log),
        scored=False,
        why_not=why,
        labels=_labels(log),
    )


def _stated(log: PublishedRow) -> float | None:
    try:
        return number(log, PUBLISHED[KV_CACHE])
    except UnclearRowError:
        return None


def _contradicts_itself(log: PublishedRow, conditions: LogConditions) -> str:
    """Return how the parts of a log that gives them all differ from its budget; empty where they add up."""
    parts = [number(log, f"{name}_gib") for name in ("weights", "activation_peak", "non_torch", "kv_cache")]
    total = sum(part or 0.0 for part in parts)
    budget = conditions.gpu.engine_memory_bytes * conditions.utilization / GIB
    if None in parts or abs(total - budget) < 0.01 * budget:
        return ""
    return f"its parts add up to {total:.1f} GiB, its flags give a budget of {budget:.1f}"


def _labels(log: PublishedRow) -> dict[str, str]:
    return {
        "model": str(log.get("model") or "not stated"),
        "gpu": str(log.get("gpu") or "not stated"),
        "release": str(log.get("vllm") or log.get("engine") or "not stated"),
    }
