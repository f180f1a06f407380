"""A server with given flags at start-up: where the memory of one GPU goes, and whether the engine starts.

In: ``MemoryRequest`` and the calibration. Out: ``StartUp``: the likely and the pessimistic end of the estimate, the KV
cache at both, and the ``Misfit`` where the pessimistic end does not start. Called by ``fit.py`` for the flags that it
tries, and by ``vlmctl memory`` for those of a user.
"""

from dataclasses import dataclass, replace

from vlm_operator.catalogue.types import MemoryCalibration
from vlm_operator.sizing.host import HostResources, estimate_host
from vlm_operator.sizing.kv_cache import KVCachePlan, kv_layout, plan_kv_cache
from vlm_operator.sizing.memory import (
    MemoryBreakdown,
    MemoryEstimate,
    MemoryNeed,
    MemoryRequest,
    breakdown,
    estimate_memory,
    memory_need,
    with_budget,
)
from vlm_operator.sizing.memory_constants import constants_at
from vlm_operator.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """The part that is too large; ``shortfall_fraction`` is what lacks as a share of the GPU."""

    reason: str
    message: str
    shortfall_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """One rank's memory once the engine has started, at the likely and at the pessimistic end.

    Attributes:
        pessimistic: The bad end of every estimate together: a server fits where this end fits.
        cache: The KV cache that this end leaves: what a plan may promise.
        misfit: Why this end does not start, None where it does.
    """

    request: MemoryRequest
    calibration: MemoryCalibration
    kv_cache_dtype: str
    pessimistic: MemoryEstimate
    cache: KVCachePlan
    misfit: Misfit | None

    @property
    def likely(self) -> MemoryEstimate:
        """The estimate with every constant at its likely figure."""
        return estimate_memory(self.request, constants_at(self.calibration, "value"))

    @property
    def likely_cache(self) -> KVCachePlan:
        """The KV cache that the engine will most likely have."""
        return _plan_cache(self.request, self.likely, self.kv_cache_dtype)

    @property
    def memory(self) -> MemoryBreakdown:
        """The whole GPU by part, the KV cache as the pessimistic end leaves it."""
        return breakdown(self.likely, self.pessimistic, self.pessimistic.kv_available_bytes)

    @property
    def host(self) -> HostResources:
        """What the pod needs beside the GPU."""
        return estimate_host(self.request, constants_at(self.calibration, "high"))


def start_up(
    request: MemoryRequest, calibration: MemoryCalibration, *, kv_cache_dtype: str = "auto", leave_room: bool = False
) -> StartUp:
    """Return what the engine finds when it starts with the flags of ``request``.

    ``leave_room`` lowers the utilization to what leaves room for that which lies outside the engine's budget.
    """
    need = memory_need(request, constants_at(calibration, "high"))
    if leave_room:
        most = _roomy_percent(request, need)
        if most < request.utilization_percent:
            request = replace(request, utilization_percent=most)
    pessimistic = with_budget(request, need)
    cache = _plan_cache(request, pessimistic, kv_cache_dtype)
    return StartUp(
        request=request,
        calibration=calibration,
        kv_cache_dtype=kv_cache_dtype,
        pessimistic=pessimistic,
        cache=cache,
        misfit=_misfit(pessimistic, cache),
    )


def _roomy_percent(request: MemoryRequest, need: MemoryNeed) -> int:
    """Return the largest whole per cent that leaves room for what lies outside the budget.

    ``breakdown`` rounds parts up to whole MiB, so the last per cent is given up where it would be less than that.
    """
    total = request.gpu.engine_memory_bytes
    return max(1, (total - need.outside.total - 16 * MIB) * 100 // total)


def _plan_cache(request: MemoryRequest, estimate: MemoryEstimate, dtype: str) -> KVCachePlan:
    return plan_kv_cache(
        kv_layout(request.shape, request.kv_settings(dtype)),
        max_model_len=request.max_model_len,
        max_in_flight_tokens=request.max_in_flight_tokens,
        available_bytes=estimate.kv_available_bytes,
    )


def _misfit(estimate: MemoryEstimate, cache: KVCachePlan) -> Misfit | None:
    if not cache.starts:
        return _too_little_memory(estimate, cache)
    if estimate.fits_outside:
        return None
    total = estimate.engine_total_bytes
    left, needed = total - estimate.budget_bytes, estimate.need.outside.total
    percent = (total - needed) * 100 // total
    message = (
        f"the budget of {estimate.budget_bytes / GIB:.1f} GiB leaves {left / GIB:.1f} GiB of {total / GIB:.1f} for the "
        f"CUDA context, communication and caches, which take {needed / GIB:.1f}; use at most {percent / 100:.2f} of it"
    )
    return Misfit(reason="OutsideBudget", message=message, shortfall_fraction=(needed - left) / total)


def _too_little_memory(estimate: MemoryEstimate, cache: KVCachePlan) -> Misfit:
    """Name the part that is too large, by how much, in GiB."""
    short = cache.min_available_bytes - estimate.kv_available_bytes
    weights = estimate.need.weights.total / GIB
    left = estimate.kv_available_bytes / GIB
    needed = cache.min_available_bytes / GIB
    total = estimate.engine_total_bytes / GIB
    if estimate.need.weights.total >= estimate.budget_bytes:
        budget = estimate.budget_bytes / GIB
        message = f"weights take {weights:.1f} GiB per GPU, more than the {budget:.1f} usable of {total:.1f} GiB"
        reason = "Weights"
    elif left <= 0:
        message = (
            f"weights {weights:.1f} GiB and activations {estimate.need.activations.peak / GIB:.1f} GiB per GPU "
            f"leave nothing for the KV cache of {total:.1f} GiB; {short / GIB:.1f} GiB too little"
        )
        reason = "Memory"
    else:
        message = f"weights {weights:.1f} GiB per GPU leave {left:.1f} GiB for KV cache; one request needs {needed:.1f}"
        reason = "KVCache"
    return Misfit(reason=reason, message=message, shortfall_fraction=short / estimate.engine_total_bytes)
