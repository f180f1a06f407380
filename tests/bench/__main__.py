"""How fast the product answers: `python -m tests.bench` prints one line per figure, best of several runs.

Figures are printed in units of this machine's own speed as well (one unit: a fixed loop of plain Python), so
that figures of different machines can be compared.
"""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

from tests.bench.plans import cold_plan, growth_actions, plan_times
from tests.bench.traffic import traffic_actions
from tests.support.rules import example_rules
from vlm_operator.api.validate import Resource, load_resources
from vlm_operator.catalogue import load
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing import search
from vlm_operator.sizing.fit import FitRequest, MemoryFit, fit_memory
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.judge import judge
from vlm_operator.sizing.question import Candidate, Question
from vlm_operator.sizing.start_up import Misfit
from vlm_operator.sizing.tokens import BUILDERS, ImageRule

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
FRESH = itertools.count()
"""Each run counts sizes that no run before it counted, so that nothing kept is measured."""


def best_seconds(action: Callable[[], object], runs: int = 3) -> float:
    """Return the shortest of several runs."""
    figures = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        figures.append(time.perf_counter() - started)
    return min(figures)


def unit() -> None:
    """Spend the unit of work that ratios are given in."""
    total = 0
    for number in range(1_000_000):
        total += number * number % 7


def load_catalogue() -> None:
    """Read every file of the catalogue, nothing kept from before."""
    for kept in vars(load).values():
        if hasattr(kept, "cache_clear"):
            kept.cache_clear()
    load.all_gpus()
    for model_id in load.model_ids():
        load.find_model(model_id)


def count_thousand(rule: ImageRule) -> None:
    """Count 1,000 images from thumbnails to 16 megapixels, upright and wide, none counted before."""
    start = next(FRESH)
    for number in range(1_000):
        rule.count_image(64 + 4 * number, 64 + number * 7919 % 4_000 + start)


def judged_candidates(resource: Resource, inventory: Inventory) -> list[tuple[Candidate, Question]]:
    """Return every candidate that a plan by closed formulas judges, and the question that it is judged by."""
    judged: list[tuple[Candidate, Question]] = []

    def note(candidate: Candidate, question: Question) -> object:
        judged.append((candidate, question))
        return judge(candidate, question)

    with mock.patch.object(search, "judge", note):
        plan_deployment(resource.spec, inventory, simulate=False)
    return judged


def judge_all(judged: Sequence[tuple[Candidate, Question]]) -> None:
    """Judge each candidate: legality, context, memory, traffic, latency, price."""
    for candidate, question in judged:
        judge(candidate, question)


def fitted_requests(judged: Sequence[tuple[Candidate, Question]]) -> list[FitRequest]:
    """Return what the memory of each candidate is asked with; none for those that are refused before."""
    fitted: list[FitRequest] = []

    def note(request: FitRequest) -> MemoryFit | Misfit:
        fitted.append(request)
        return fit_memory(request)

    with mock.patch.object(sys.modules[judge.__module__], "fit_memory", note):
        judge_all(judged)
    return fitted


def fit_all(fitted: Sequence[FitRequest]) -> None:
    """Fit the memory of each candidate: batch, utilization, KV cache, host."""
    for request in fitted:
        fit_memory(request)


def start_command_line() -> None:
    """Start `vlmctl --help`."""
    command = [sys.executable, "-m", "vlm_operator.cli.main", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(Path(load.__file__).parents[2])}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def main() -> None:
    """Print the table."""
    one = best_seconds(unit)
    sys.stdout.write(f"{'unit of work (1,000,000 steps of plain Python)':<78}{one * 1000:9.1f} ms {1.0:8.3f}\n")

    def show(name: str, action: Callable[[], object], runs: int = 3) -> None:
        spent = best_seconds(action, runs)
        sys.stdout.write(f"{name:<78}{spent * 1000:9.1f} ms {spent / one:8.3f}\n")

    def show_each(name: str, action: Callable[[], object], times: int) -> None:
        microseconds = best_seconds(action, 5) / max(times, 1) * 1e6
        sys.stdout.write(f"{name:<78}{microseconds:9.1f} µs\n")

    show("catalogue: read and check every file", load_catalogue)
    show("vlmctl --help, a new process", start_command_line)
    for sample in ("chat.yaml", "invoices.yaml"):
        show(f"vlmctl plan --no-simulation, a new process: {sample}", cold_plan(SAMPLES / sample), runs=5)
    for how, simulate, every in (("closed formulas", False, 1), ("with trials", True, 4)):
        number, middle, longest = plan_times(simulate=simulate, every=every)
        for word, spent in (("median", middle), ("longest", longest)):
            name = f"plan on every GPU kind, {how}: {word} of {number} models"
            sys.stdout.write(f"{name:<78}{spent * 1000:9.1f} ms {spent / one:8.3f}\n")
    for name, action in (*growth_actions(), *traffic_actions()):
        show(name, action)
    examples = example_rules()
    rules = {(builder.module, builder.key) for builder in BUILDERS.values()}
    for name, key in sorted(rules, key=lambda pair: (pair[0], examples[pair[1]][0])):
        architecture, rule = examples[key]
        show(f"1,000 images: {name}, {architecture}", partial(count_thousand, rule))
    for file in sorted(SAMPLES.glob("*.yaml")):
        resources = load_resources(file.read_text(), file.name)
        inventory = catalogue_inventory()
        show(f"plan: {file.name}", lambda r=resources, i=inventory: [plan_deployment(x.spec, i) for x in r])  # type: ignore[misc]
        judged = judged_candidates(resources[0], inventory)
        show_each(f"  one of {len(judged)} candidates judged, warm", partial(judge_all, judged), len(judged))
        fitted = fitted_requests(judged)
        show_each("  of it, its memory", partial(fit_all, fitted), len(fitted))


if __name__ == "__main__":
    main()
