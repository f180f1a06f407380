"""How fast the product answers: `python -m tests.bench` prints one line per figure, best of several runs.

Figures are printed in units of this machine's own speed as well (one unit: a fixed loop of plain Python), so
that figures of different machines can be compared.
"""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vlm_operator.api.validate import load_resources
from vlm_operator.catalogue import load
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing.tokens.registry import bind_rule
from vlm_operator.sizing.tokens.types import ServerSettings, TokenRefusal

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


def count_all(model_id: str) -> Callable[[], object] | None:
    """Return the action that counts 1,000 sizes, None where the family is refused."""
    card = load.find_model(model_id)
    rule = bind_rule(card.architecture, card.config, card.processor, ServerSettings(), card.id)
    if isinstance(rule, TokenRefusal):
        return None

    def count_thousand() -> None:
        start = next(FRESH)
        for number in range(1_000):
            rule.count_image(100 + 3 * number + start % 3, 100 + start)

    return count_thousand


def start_command_line() -> None:
    """Start `vlmctl --help`."""
    command = [sys.executable, "-m", "vlm_operator.cli.main", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(Path(load.__file__).parents[2])}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def main() -> None:
    """Print the table."""
    one = best_seconds(unit)
    sys.stdout.write(f"{'unit of work (1,000,000 steps of plain Python)':<62}{one * 1000:9.1f} ms {1.0:8.3f}\n")

    def show(name: str, action: Callable[[], object], runs: int = 3) -> None:
        spent = best_seconds(action, runs)
        sys.stdout.write(f"{name:<62}{spent * 1000:9.1f} ms {spent / one:8.3f}\n")

    show("catalogue: read and check every file", load_catalogue)
    show("vlmctl --help, a new process", start_command_line)
    seen: set[str] = set()
    for model_id in load.model_ids():
        architecture = load.find_model(model_id).architecture
        action = None if architecture in seen else count_all(model_id)
        if action is not None:
            seen.add(architecture)
            show(f"1,000 images: {architecture}", action)
    for sample in sorted(SAMPLES.glob("*.yaml")):
        resources = load_resources(sample.read_text(), sample.name)
        inventory = catalogue_inventory()
        show(f"plan: {sample.name}", lambda r=resources, i=inventory: [plan_deployment(x.spec, i) for x in r])  # type: ignore[misc]


if __name__ == "__main__":
    main()
