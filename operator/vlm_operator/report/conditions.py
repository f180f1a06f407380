"""Outcome + observation -> the whole status of a resource. Pure: the time is handed in.

The previous conditions serve one purpose: ``lastTransitionTime`` stays what it was while a condition's
status stays, so that an unchanged resource gets an unchanged status, byte for byte. Called by the controller
after each reconcile.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from vlm_operator.api import names
from vlm_operator.errors import Problem
from vlm_operator.report.availability import available_verdict
from vlm_operator.report.observation import Observation
from vlm_operator.report.status_plan import (
    empty_summary,
    format_accelerator,
    no_fit_status,
    plan_digest,
    plan_status,
)
from vlm_operator.report.verdict import Verdict, pending
from vlm_operator.sizing.plan import NoFit, Plan

Outcome = Plan | NoFit | Problem

_SIZING_REASONS: Final = frozenset(
    {names.REASON_NO_FIT, names.REASON_NO_GPUS, names.REASON_UNKNOWN_GPU, names.REASON_TOO_FEW_GPUS}
)
"""Reasons of a NoFit that other GPUs would cure; with any other reason the spec itself is not accepted."""

_KEPT: Final = (
    "the running Deployment stays, although it would be planned differently today; a change of the spec replaces it"
)
"""For an operator that was upgraded, or GPUs that came and went: neither restarts anything."""


class Identity(Protocol):
    """What status needs of a resource, also of one whose spec cannot be read."""

    @property
    def name(self) -> str:
        """``metadata.name``."""

    @property
    def namespace(self) -> str:
        """``metadata.namespace``."""

    @property
    def generation(self) -> int:
        """``metadata.generation``."""


def build_status(
    resource: Identity,
    outcome: Outcome,
    observation: Observation,
    previous_conditions: Sequence[Mapping[str, Any]],
    now: str,
    *,
    suspended: bool = False,
) -> dict[str, Any]:
    """Return the whole of ``status``; a field that does not apply is absent, so replace, do not merge."""
    verdicts = judge_conditions(outcome, observation, suspended=suspended)
    ready = verdicts[names.READY]
    status: dict[str, Any] = {
        "conditions": _as_conditions(verdicts, resource.generation, previous_conditions, now),
        "observedGeneration": resource.generation,
        "replicas": observation.desired_replicas,
        "readyReplicas": observation.ready_replicas,
    }
    if observation.selector:
        status["selector"] = observation.selector
    if observation.service_name:
        status["endpoint"] = f"http://{observation.service_name}.{resource.namespace}.svc:8000/v1"
    status |= _outcome_status(outcome)
    status["summary"] |= {"reason": ready.reason, "ready": _ready_count(outcome, observation)}
    return status


def judge_conditions(outcome: Outcome, observation: Observation, *, suspended: bool) -> dict[str, Verdict]:
    """Return the verdict of every condition; Ready is the conjunction of the others."""
    verdicts = {
        names.ACCEPTED: _accepted(outcome),
        names.SIZED: _sized(outcome),
        names.APPLIED: _applied(outcome, observation),
        names.AVAILABLE: available_verdict(observation, suspended=suspended),
    }
    return {**verdicts, names.READY: conjunction(list(verdicts.values()))}


def conjunction(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the first verdict that does not hold, as False, or the last: the reason nearest to the cause.

    A condition that is Unknown keeps Ready from being True; Ready itself is False then, as clients that wait
    for it expect, and takes the reason of the first False one where there is one.
    """
    blocking = [verdict for verdict in verdicts if verdict.status == "False"]
    blocking += [verdict for verdict in verdicts if verdict.status == "Unknown"]
    if not blocking:
        return verdicts[-1]
    return Verdict("False", blocking[0].reason, blocking[0].message)


def _ready_count(outcome: Outcome, observation: Observation) -> str:
    """Return ready and planned replicas, such as ``1/2``."""
    if isinstance(outcome, Plan):
        return f"{observation.ready_replicas}/{outcome.replicas}"
    return f"{observation.ready_replicas}/{observation.desired_replicas}" if observation.deployment_present else "-"


def _accepted(outcome: Outcome) -> Verdict:
    match outcome:
        case Problem():
            where = f"{outcome.path}: " if outcome.path else ""
            return Verdict("False", names.REASON_INVALID_SPEC, f"{where}{outcome.message}")
        case NoFit(reason=reason) if reason not in _SIZING_REASONS:
            return Verdict("False", reason, outcome.message)
        case NoFit():
            return Verdict("True", names.REASON_ACCEPTED, f"{outcome.model_id} can be served by the engine")
        case Plan():
            message = f"{outcome.model_id} can be served by vLLM {outcome.engine_version}"
            return Verdict("True", names.REASON_ACCEPTED, message)


def _sized(outcome: Outcome) -> Verdict:
    match outcome:
        case Plan():
            gpus = format_accelerator(outcome.gpu.display_name, outcome.gpus_per_replica)
            message = f"{outcome.replicas} × ({gpus}); {outcome.binding_constraint} breaks first"
            return Verdict("True", names.REASON_PLANNED, message)
        case NoFit(reason=reason) if reason in _SIZING_REASONS:
            return Verdict("False", reason, _no_fit_message(outcome))
        case _:
            return pending("nothing is sized before the spec is accepted")


def _no_fit_message(no_fit: NoFit) -> str:
    suggestions = f" What would fit: {'; '.join(map(str, no_fit.suggestions))}" if no_fit.suggestions else ""
    return f"{no_fit.message}{suggestions}"


def _applied(outcome: Outcome, observation: Observation) -> Verdict:
    if observation.apply_error:
        return Verdict("False", names.REASON_APPLY_FAILED, observation.apply_error)
    if not isinstance(outcome, Plan):
        return pending("nothing is applied without a plan that fits")
    if not observation.deployment_present:
        return pending("the children are being created")
    if observation.plan_digest not in ("", plan_digest(outcome)):
        return Verdict("True", names.REASON_APPLIED, _KEPT)
    return Verdict("True", names.REASON_APPLIED, "the children on the cluster are those of the plan")


def _outcome_status(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Plan():
            return plan_status(outcome)
        case NoFit():
            return no_fit_status(outcome)
        case Problem():
            return {"summary": empty_summary(names.REASON_INVALID_SPEC)}


def _as_conditions(
    verdicts: Mapping[str, Verdict], generation: int, previous: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    before = {str(condition.get("type")): condition for condition in previous}
    return [
        {
            "type": name,
            "status": verdict.status,
            "reason": verdict.reason,
            "message": verdict.message,
            "observedGeneration": generation,
            "lastTransitionTime": _transition_time(before.get(name), verdict, now),
        }
        for name, verdict in verdicts.items()
    ]


def _transition_time(before: Mapping[str, Any] | None, verdict: Verdict, now: str) -> str:
    if before is not None and before.get("status") == verdict.status and before.get("lastTransitionTime"):
        return str(before["lastTransitionTime"])
    return now
