"""What-if: plans of a changed spec beside the declared one. The same engine answers.

``vlmctl plan`` closes with twice and half the pixels in a line each; ``--what-if`` shows any change in full.
"""

from collections.abc import Sequence
from typing import Any

from vlm_operator.api.spec import MAX_IMAGE_PIXELS, VLMDeploymentSpec
from vlm_operator.api.validate import Resource
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cli.changes import Change
from vlm_operator.cli.comparison import Column, comparison_screen
from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.text import fold
from vlm_operator.errors import InputError, Problem
from vlm_operator.planning import constraints_of, plan_deployment
from vlm_operator.report.figures import runs_on, seconds
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan

FIXED_SIZE = "max-pixels changes nothing here: no setting of this model changes how much of an image it sees"


def twice_and_half(
    spec: VLMDeploymentSpec, inventory: Inventory, plan: Plan, card: ModelCard | None, *, simulate: bool = True
) -> tuple[str, ...]:
    """Return one line for twice and one for half the pixels; nothing where no floor is declared."""
    floor = spec.quality.min_pixels_per_image
    if floor is None or plan.cap_value is None:
        return ()
    rows = []
    for words, pixels in (("twice the pixels", floor * 2), ("half the pixels", floor // 2)):
        if 1 <= pixels <= MAX_IMAGE_PIXELS:
            asked = Change(max_pixels=pixels).apply(spec)
            outcome = plan_deployment(asked, inventory, card, simulate=simulate, suggest=False)
            rows.append(f"{words:<19}{_in_one_line(plan, outcome)}")
    return tuple(rows)


def plan_changed(
    spec: VLMDeploymentSpec, inventory: Inventory, card: ModelCard | None, change: Change, *, simulate: bool = True
) -> Plan | NoFit:
    """Return what comes out for ``spec`` with ``change``.

    Raises:
        InputError: the change names a GPU that is neither in the catalogue nor in the inventory, or too many pixels.
    """
    if (change.max_pixels or 0) > MAX_IMAGE_PIXELS:
        message = f"max-pixels={change.max_pixels} is more than an image may have ({MAX_IMAGE_PIXELS})"
        raise InputError([Problem(path="", message=message)])
    try:
        return plan_deployment(
            change.apply(spec),
            inventory,
            card,
            tensor_parallel_size=change.tensor_parallel_size,
            simulate=simulate,
        )
    except InputError as error:
        named = "spec.accelerators.allowed" if change.gpu is not None else None
        told = [
            Problem(path="", message=f"gpu={change.gpu}: {problem.message}")
            if named and problem.path.startswith(named)
            else problem
            for problem in error.problems
        ]
        raise InputError(told) from None


def what_if_columns(
    resource: Resource, declared: Plan | NoFit, changed: Sequence[tuple[Change, Plan | NoFit]]
) -> list[Column]:
    """Return a column for what is declared and one for each change."""
    targets = constraints_of(resource.spec).latency_targets
    named = [("as declared", declared), *((str(change), outcome) for change, outcome in changed)]
    return [Column(title=title, outcome=outcome, targets=targets) for title, outcome in named]


def what_if_screen(
    resource: Resource, declared: Plan | NoFit, changed: Sequence[tuple[Change, Plan | NoFit]], style: Style
) -> list[str]:
    """Return the declared plan and the changed ones side by side."""
    title = f"{resource.name} · {resource.spec.model.id}"
    lines = [*(style.paint("strong", row) for row in fold(title, COLUMNS)), ""]
    lines += comparison_screen(what_if_columns(resource, declared, changed), style)
    fixed = [
        change for change, outcome in changed
        if change.max_pixels is not None and isinstance(outcome, Plan) and outcome.cap_value is None
    ]  # fmt: skip
    if fixed:
        lines += ["", FIXED_SIZE]
    return lines


def changed_documents(changed: Sequence[tuple[Change, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return what came out for each change, with the change."""
    return [{"change": change.as_document(), **document} for change, document in changed]


def _in_one_line(plan: Plan, other: Plan | NoFit) -> str:
    if isinstance(other, NoFit):
        return "does not fit"
    price = "price unknown"
    if plan.hourly_cents is not None and other.hourly_cents is not None:
        change = other.hourly_cents - plan.hourly_cents
        price = f"{'−' if change < 0 else '+'}${abs(change) / 100:.2f}/h"
    return f"{price} on {runs_on(other)} · TTFT p95 {seconds(other.latency.ttft.p95)}"
