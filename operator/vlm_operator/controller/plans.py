"""Plans kept by what they were asked for, so that events about an unchanged resource do not search and simulate anew.

In: what ``planning.plan_deployment`` takes. Out: its answer, which depends on nothing else. Used by one thread,
``reconcile``'s, so that nothing here is locked.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.planning import plan_deployment
from vlm_operator.report.status_plan import canonical_digest, spec_digest
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan

PlanFunction = Callable[[VLMDeploymentSpec, Inventory, ModelCard | None], Plan | NoFit]

MOST_KEPT: Final = 1024
"""Answers, of about 10 kB each: a visit asks for two, so some hundred resources find theirs again."""


class KeptPlans:
    """Answers by the digest of the question; the ones that were not asked for longest are forgotten first."""

    def __init__(self, ask: PlanFunction = plan_deployment, *, most: int = MOST_KEPT) -> None:
        self._ask = ask
        self._most = most
        self._answers: OrderedDict[str, Plan | NoFit] = OrderedDict()

    def plan(self, spec: VLMDeploymentSpec, inventory: Inventory, card: ModelCard | None) -> Plan | NoFit:
        """Return what to run for ``spec`` on ``inventory``, or why nothing fits.

        Raises:
            InputError: as in ``plan_deployment``; that is found out at once and not kept.
        """
        question = canonical_digest(
            {"spec": spec_digest(spec), "inventory": asdict(inventory), "card": card and dict(card)}
        )
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = self._ask(spec, inventory, card)
        self._answers.move_to_end(question)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return answer
