"""The words for a live object: what its status says, the answer first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.text import LABEL_WIDTH, MARGIN, fold, section
from vlm_operator.cli.waterfall import waterfall
from vlm_operator.sizing.memory import MemoryBreakdown, describe_part
from vlm_operator.units import GIB, MIB, format_gib, parse_quantity

_CERTAINTIES: Final = {
    "Measured": "this very plan was measured",
    "Calibrated": "by measurements of this GPU, not of this plan",
    "Datasheet": "only the GPU's datasheet is known",
    "Remembered": "values of the model were not read from its files",
}


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
    return [
        *lines,
        *_block("Runs", _runs(status)),
        *_block("Endpoint", [str(status["endpoint"])] if status.get("endpoint") else []),
        *_memory(status),
        *_block("Expected", _expected(_mapping(status, "estimate"))),
        *_block("nearest", _misses(no_fit.get("nearest", []))),
        *_block("what would fit", [str(suggestion) for suggestion in no_fit.get("suggestions", [])]),
        *_block("Conditions", _conditions(conditions, ready.get("message", ""))),
        *_block("Others", _misses(status.get("alternatives", []))),
    ]


def _block(label: str, block: Sequence[str]) -> list[str]:
    return ["", *section(label, block)] if block else []


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
    """Return the waterfall that ``vlmctl plan`` and ``vlmctl memory`` show, from the figures of the status."""
    estimate, plan = _mapping(status, "estimate"), _mapping(status, "plan")
    parts = [
        describe_part(str(part.get("part")), int(part.get("mebibytes", 0)) * MIB)
        for part in estimate.get("memoryPerGPU", [])
    ]
    if not parts:
        return []
    memory = MemoryBreakdown(parts=tuple(parts))
    seen = f"{memory.total_bytes / GIB:.1f} GiB seen by the engine"
    lines = ["", f"{MARGIN}{'Memory per GPU':<{LABEL_WIDTH}}{seen}", *waterfall(memory)]
    if "kvCacheTokens" in estimate:
        held = f"{estimate.get('concurrentRequests', '?')} of the largest requests at once"
        lines.append(f"{MARGIN}  {estimate['kvCacheTokens']:,} tokens of KV cache hold {held}")
    if "hostMemory" in plan:
        beside = f"{plan.get('cpu', '?')} CPU cores · {_gib(plan['hostMemory'])} of host memory"
        lines.append(f"{MARGIN}  beside the GPU: {beside} · {_gib(plan.get('sharedMemory', '0'))} in /dev/shm")
    return lines


def _gib(quantity: str) -> str:
    return format_gib(int(parse_quantity(quantity)))


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
    if "costCentsPerThousandImages" in estimate:
        lines.append(f"1,000 images cost ${estimate['costCentsPerThousandImages'] / 100:.2f} at the declared rate")
    if "bindingConstraint" in estimate:
        lines.append(f"breaks first as load grows: {estimate['bindingConstraint']}")
    if "certainty" in estimate:
        lines.append(f"certainty: {estimate['certainty']}{_means(estimate['certainty'])}")
    return lines


def _means(certainty: str) -> str:
    """Return what a word of the contract means; nothing for one of another release."""
    return f", {_CERTAINTIES[certainty]}" if certainty in _CERTAINTIES else ""


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
