"""``vlmctl plan`` and ``vlmctl render``: read objects, plan each, say or print what comes out."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlm_operator.api.documents import read_documents
from vlm_operator.api.names import REASON_UNKNOWN_MODEL
from vlm_operator.api.validate import Resource, load_resources
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cli import output
from vlm_operator.cli.changes import Change, wanted_changes
from vlm_operator.cli.inputs import SourcedInputError, display_name, read_text
from vlm_operator.cli.inventory_file import open_inventory
from vlm_operator.cli.models import declared_card
from vlm_operator.cli.no_fit_screen import no_fit_screen
from vlm_operator.cli.plan_screen import Asked, plan_screen
from vlm_operator.cli.what_if import changed_documents, plan_changed, twice_and_half, what_if_screen
from vlm_operator.errors import InputError, Problem
from vlm_operator.planning import constraints_of, plan_deployment
from vlm_operator.report.status_plan import no_fit_status, plan_status
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan


@dataclass(frozen=True, slots=True)
class Answer:
    """One object of the file and what came out for it."""

    resource: Resource
    inventory: Inventory
    outcome: Plan | NoFit
    card: ModelCard | None = None


def run_plan(arguments: argparse.Namespace) -> int:
    """Print one answer per object; 1 if any of them does not fit."""
    changes = wanted_changes(arguments)
    simulate = arguments.simulate
    answers = plan_file(arguments.file, arguments.inventory, arguments.model_dir, simulate=simulate)
    if changes:
        return _what_if(answers, changes, arguments.output, simulate=simulate)
    if arguments.output == "human":
        style = output.stdout_style()
        screens = [_screen(answer, arguments, style) for answer in answers]
        output.write_lines([line for screen in screens for line in (*screen, "", "")][:-2])
    else:
        output.write_data(one_or_list([_document(answer) for answer in answers]), arguments.output)
    return int(any(isinstance(answer.outcome, NoFit) for answer in answers))


def _what_if(answers: Sequence[Answer], changes: Sequence[Change], form: str, *, simulate: bool) -> int:
    """Print each declared plan beside the changed ones; 1 if any of them does not fit."""
    screens: list[list[str]] = []
    documents: list[dict[str, Any]] = []
    fits = True
    for answer in answers:
        spec, inventory = answer.resource.spec, answer.inventory
        changed = [
            (change, plan_changed(spec, inventory, answer.card, change, simulate=simulate)) for change in changes
        ]
        screens.append(what_if_screen(answer.resource, answer.outcome, changed, output.stdout_style()))
        told = [(change, outcome_document(outcome)) for change, outcome in changed]
        documents.append({**_document(answer), "whatIf": changed_documents(told)})
        fits = fits and not any(isinstance(it, NoFit) for it in (answer.outcome, *(plan for _, plan in changed)))
    if form == "human":
        output.write_lines([line for screen in screens for line in (*screen, "", "")][:-2])
    else:
        output.write_data(one_or_list(documents), form)
    return int(not fits)


def run_render(arguments: argparse.Namespace) -> int:
    """Print the manifests of every object; nothing at all if one of them does not fit."""
    from vlm_operator.cli.rendering import manifests_of  # noqa: PLC0415 - templates are only for render

    answers = plan_file(arguments.file, arguments.inventory, arguments.model_dir)
    failed = False
    documents: list[Any] = []
    for answer in answers:
        if isinstance(answer.outcome, NoFit):
            failed = True
            output.say(f"{answer.resource.name}: {answer.outcome.message}")
        else:
            documents.extend(manifests_of(answer.resource, answer.outcome))
    if failed:
        output.say(f"nothing was rendered; see: vlmctl plan -f {arguments.file}")
        return 1
    if arguments.output == "json":
        output.write_data({"apiVersion": "v1", "kind": "List", "items": documents}, "json")
    else:
        output.write_lines([output.dump_yaml(documents).rstrip("\n")])
    return 0


def plan_file(file: str, inventory_source: str, model_dir: str | None = None, *, simulate: bool = True) -> list[Answer]:
    """Return an answer for each object in ``file``; ``model_dir`` describes the model instead of its source.

    Without ``simulate`` the answers come from closed formulas alone.

    Raises:
        InputError: Something in the file cannot be used; every problem of every object is listed.
    """
    source = display_name(file)
    text = read_text(file)
    try:
        resources = load_resources(text, source)
    except InputError as error:
        raise SourcedInputError(error.problems, source) from None
    inventory_for = open_inventory(inventory_source)
    answers: list[Answer] = []
    problems: list[Problem] = []
    for resource, document in zip(resources, read_documents(text, source), strict=True):
        inventory = inventory_for(resource.namespace or "default", resource.name, document.value)
        try:
            card = declared_card(resource, inventory_source, model_dir)
            answers.append(Answer(resource, inventory, _plan(resource, inventory, card, simulate=simulate), card))
        except InputError as error:
            name = resource.name if len(resources) > 1 else ""
            problems.extend(located(problem, document.lines, name) for problem in error.problems)
    if problems:
        raise SourcedInputError(problems, source)
    return answers


def located(problem: Problem, lines: Mapping[str, int], name: str) -> Problem:
    """Return ``problem`` with its line, and with the object's name where a file holds several."""
    path = problem.path
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return Problem(path=f"{name} {problem.path}".strip(), message=problem.message, line=problem.line or lines.get(path))


def _plan(resource: Resource, inventory: Inventory, card: ModelCard | None, *, simulate: bool) -> Plan | NoFit:
    """Plan one object; a model that nobody knows is wrong input here, since nothing could ever fit it."""
    outcome = plan_deployment(resource.spec, inventory, card, simulate=simulate)
    if isinstance(outcome, NoFit) and outcome.reason == REASON_UNKNOWN_MODEL:
        raise InputError([Problem(path="spec.model.id", message=outcome.message)])
    return outcome


def _screen(answer: Answer, arguments: argparse.Namespace, style: output.Style) -> list[str]:
    outcome = answer.outcome
    if isinstance(outcome, NoFit):
        asked = Asked(name=answer.resource.name, inventory=arguments.inventory)
        return no_fit_screen(outcome, asked, style)
    asked = Asked(
        name=answer.resource.name,
        file=arguments.file,
        inventory=arguments.inventory,
        model_dir=arguments.model_dir,
        what_if=twice_and_half(
            answer.resource.spec, answer.inventory, outcome, answer.card, simulate=arguments.simulate
        ),
        targets=constraints_of(answer.resource.spec).latency_targets,
    )
    return plan_screen(outcome, asked, style)


def _document(answer: Answer) -> dict[str, Any]:
    return {
        "name": answer.resource.name,
        "namespace": answer.resource.namespace,
        **outcome_document(answer.outcome),
    }


def outcome_document(outcome: Plan | NoFit) -> dict[str, Any]:
    """Return an outcome as status says it, with what only a person at a desk asks for."""
    return _no_fit_document(outcome) if isinstance(outcome, NoFit) else plan_status(outcome)


def _no_fit_document(no_fit: NoFit) -> dict[str, Any]:
    status = no_fit_status(no_fit)
    status["noFit"] |= {"model": no_fit.model_id, "byReason": dict(no_fit.by_reason)}
    return status


def one_or_list(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the document of the only object, or all of them under ``items``."""
    return documents[0] if len(documents) == 1 else {"items": documents}
