"""Points of a sweep as flat rows: the same keys in CSV, JSON and YAML, each figure with its unit in the key."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vlm_operator.cli.sweep import SweepPoint
from vlm_operator.report.choices import identity
from vlm_operator.report.status_plan import certainty_word
from vlm_operator.sizing.frontier import Frontier, kept_pixels
from vlm_operator.sizing.plan import NoFit, Plan, Rejection

_METRICS = (("ttft", "ttft"), ("tpot", "tpot"), ("requestLatency", "request"))


def sweep_rows(name: str, points: Iterable[SweepPoint], frontier: Frontier) -> list[dict[str, Any]]:
    """Return one row for each point; every row has every key, None where a point has no such figure."""
    return [
        {
            "name": name,
            **_change(point),
            **_verdict(point),
            **_figures(point.outcome if isinstance(point.outcome, Plan) else None),
            "onCostLatencyFrontier": _is_on(point, frontier.cost_latency),
            "onCostPixelsFrontier": _is_on(point, frontier.cost_pixels),
        }
        for point in points
    ]


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV (RFC 4180) with a header; None is an empty cell, truth is ``true`` or ``false``."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def _change(point: SweepPoint) -> dict[str, Any]:
    change = point.change
    return {
        "maxPixels": change.max_pixels,
        "gpu": change.gpu,
        "wantedTensorParallelSize": change.tensor_parallel_size,
    }


def _verdict(point: SweepPoint) -> dict[str, Any]:
    outcome = point.outcome
    fits = isinstance(outcome, Plan)
    return {
        "verdict": "DoesNotFit" if not fits else "MissesTarget" if point.late else "Fits",
        "reason": outcome.reason if isinstance(outcome, Rejection | NoFit) else None,
        "message": outcome.message if isinstance(outcome, Rejection | NoFit) else None,
    }


def _figures(plan: Plan | None) -> dict[str, Any]:
    flags = plan.flags if plan else None
    figures: dict[str, Any] = {
        "model": plan and plan.model_id,
        "accelerator": plan and plan.gpu.product,
        "gpusPerReplica": plan and plan.gpus_per_replica,
        "replicas": plan and plan.replicas,
        "tensorParallelSize": flags and flags.tensor_parallel_size,
        "hourlyCostCents": plan and _rounded(plan.hourly_cents, 2),
        "centsPerThousandImages": plan and _rounded(plan.cents_per_thousand_images, 3),
        "capName": (plan and plan.cap_name) or None,
        "capValue": plan and plan.cap_value,
        "keptPixelsPerImage": plan and _rounded(kept_pixels(plan), 0),
        "imageTokensP99": plan and plan.tokens.image_p99,
        "requestTokensMax": plan and plan.tokens.request_max,
        "maxModelLen": flags and flags.max_model_len,
        "kvCacheTokens": plan and plan.kv_cache_tokens,
        "concurrentRequests": plan and plan.concurrent_requests,
        "requestsPerMinutePerReplica": plan and _rounded(plan.latency.requests_per_minute_per_replica, 2),
    }
    for key, metric in _METRICS:
        for percentile in (50, 95, 99):
            seconds = getattr(plan.latency, metric).at(percentile) if plan else None
            figures[f"{key}P{percentile}Milliseconds"] = _rounded(seconds and seconds * 1000, 2)
    return figures | {
        "bindingConstraint": plan and plan.binding_constraint,
        "simulated": None if plan is None else plan.traffic is not None,
        "certainty": plan and certainty_word(plan),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _is_on(point: SweepPoint, front: Iterable[Plan]) -> bool:
    return isinstance(point.outcome, Plan) and identity(point.outcome) in {identity(plan) for plan in front}
