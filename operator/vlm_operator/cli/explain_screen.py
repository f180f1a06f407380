"""The words for a live object: what its status says, the answer first."""

from collections.abc import Mapping, Sequence
from typing import Any

from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.text import fold, section, table


def explain_screen(body: Mapping[str, Any], style: Style) -> list[str]:
    """Return the lines of the screen for the object ``body``."""
    meta, spec, status = (_mapping(body, key) for key in ("metadata", "spec", "status"))
    conditions = [c for c in status.get("conditions", []) if isinstance(c, Mapping)]
    ready = next((c for c in conditions if c.get("type") == "Ready"), {})
    model = _mapping(spec, "model").get("id", "?")
    title = f"{meta.get('namespace', 'default')}/{meta.get('name', '?')} · {model}"
    lines = [style.paint("strong", row) for row in fold(title, COLUMNS)]
    no_fit = _mapping(status, "noFit")
    lines += ["", *_answer(ready, no_fit, style)]
    stale = status.get("observedGeneration", 0) != meta.get("generation", 0)
    if conditions and stale:
        lines.append("  the status is of an earlier spec; the operator has not answered the newest yet")
    blocks = (
        ("Runs", _runs(status)),
        ("Endpoint", [str(status["endpoint"])] if status.get("endpoint") else []),
        ("Memory per GPU", _memory(status)),
        ("Expected", _expected(_mapping(status, "estimate"))),
        ("nearest", _misses(no_fit.get("nearest", []))),
        ("what would fit", [str(suggestion) for suggestion in no_fit.get("suggestions", [])]),
        ("Conditions", _conditions(conditions, ready.get("message", ""))),
        ("Others", _misses(status.get("alternatives", []))),
    )
    for label, block in blocks:
        if block:
            lines += ["", *section(label, block)]
    return lines


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}


def _answer(ready: Mapping[str, Any], no_fit: Mapping[str, Any], style: Style) -> list[str]:
    if not ready:
        return ["… no status yet; is the operator running?"]
    good = ready.get("status") == "True"
    mark = style.paint("good", "✔") if good else style.paint("bad", "✘")
    head = "ready" if good else "not ready"
    reason, message = ready.get("reason", ""), no_fit.get("message") or ready.get("message", "")
    first, *rest = fold(f"{head}: {reason}" + (f". {message}" if message else ""), COLUMNS - 2)
    return [f"{mark} {first}", *(f"  {row}" for row in rest)]


def _runs(status: Mapping[str, Any]) -> list[str]:
    plan, summary = _mapping(status, "plan"), _mapping(status, "summary")
    if not plan:
        return []
    ready = f"{status.get('readyReplicas', 0)} of {plan.get('replicas', '?')} replicas ready"
    cap = f" · {plan['capName']} {plan['capValue']:,}" if plan.get("capName") else ""
    engine = (
        f"vLLM {plan.get('engineVersion', '?')} · max_model_len {plan.get('maxModelLen', 0):,} · "
        f"{plan.get('maxNumSeqs', 0):,} sequences · "
        f"up to {plan.get('imagesPerPrompt', '?')} images a request{cap}"
    )
    return [
        f"{ready}, each {summary.get('accelerator', '?')}, ${summary.get('hourlyCost', '-')}/h in all",
        engine,
    ]


def _memory(status: Mapping[str, Any]) -> list[str]:
    parts = _mapping(status, "estimate").get("memoryPerGPU", [])
    rows = [[str(part.get("part")), f"{part.get('mebibytes', 0):,} MiB"] for part in parts]
    if rows:
        rows.append(["sum", f"{sum(part.get('mebibytes', 0) for part in parts):,} MiB"])
    return table(rows, right=(1,))


def _expected(estimate: Mapping[str, Any]) -> list[str]:
    lines = []
    names = (
        ("ttftMilliseconds", "TTFT"),
        ("tpotMilliseconds", "TPOT"),
        ("requestLatencyMilliseconds", "request"),
    )
    for key, name in names:
        if key in estimate:
            figures = " · ".join(f"{p} {value:,} ms" for p, value in estimate[key].items())
            lines.append(f"{name:<8} {figures}")
    if "bindingConstraint" in estimate:
        lines.append(f"breaks first as load grows: {estimate['bindingConstraint']}")
    if "certainty" in estimate:
        lines.append(f"certainty: {estimate['certainty']}")
    return lines


def _conditions(conditions: Sequence[Mapping[str, Any]], said: str) -> list[str]:
    """Return a line per condition; a message that the answer has said already is not said again."""
    lines = []
    for condition in conditions:
        message = condition.get("message", "")
        words = f": {message}" if message and message != said else ""
        head = f"{condition.get('type', '?'):<10} {condition.get('status', '?'):<8} "
        lines.append(f"{head}{condition.get('reason', '')}{words}")
    return lines


def _misses(others: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for other in others:
        what = f"{other.get('gpusPerReplica', '?')} × {other.get('accelerator', '?')}: "
        lines.append(what + str(other.get("message", "")).removeprefix(what))
    return lines
