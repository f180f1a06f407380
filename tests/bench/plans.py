"""How long a plan over the whole catalogue takes, model by model, and how that grows with the GPU kinds."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.api.validate import parse_resource
from vlm_operator.catalogue import load
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing.inventory import Inventory, NodeShape

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
GROWTH = (1, 2, 4)


def photo_spec(model_id: str) -> VLMDeploymentSpec:
    """Return one photograph a request, once a second."""
    workload = {
        "images": {"sizes": [{"width": 2016, "height": 1512}], "perRequest": [{"count": 1}]},
        "text": {"promptTokens": {"p50": 300, "p99": 900}},
        "output": {"tokens": {"p50": 150, "max": 500}},
        "traffic": {"requestsPerMinute": 60},
    }
    spec = {
        "model": {"id": model_id},
        "workload": workload,
        "objectives": {"ttft": {"percentile": 95, "milliseconds": 2000}},
        "quality": {"minPixelsPerImage": 1_003_520},
    }
    head = {"apiVersion": "vlm-operator.dev/v1alpha1", "kind": "VLMDeployment", "metadata": {"name": "bench"}}
    return parse_resource({**head, "spec": spec}).spec


def plan_times(*, simulate: bool, every: int) -> tuple[int, float, float]:
    """Return how many models were planned, and the median and the longest time in seconds.

    Each is planned right after a first plan, as what-ifs, sweeps and a controller plan again.
    """
    inventory = catalogue_inventory()
    models = [model for model in load.model_ids() if load.find_model(model).served][::every]
    taken = []
    for spec in map(photo_spec, models):
        plan_deployment(spec, inventory, simulate=False, suggest=False)
        started = time.perf_counter()
        plan_deployment(spec, inventory, simulate=simulate, suggest=False)
        taken.append(time.perf_counter() - started)
    return len(models), median(taken), max(taken)


def growth_actions() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield plans on once, twice and four times as many GPU kinds."""
    spec, whole = photo_spec(MODEL), catalogue_inventory()
    for times in GROWTH:
        shapes = tuple(_renamed(shape, copy) for copy in range(times) for shape in whole.shapes)
        inventory = Inventory(shapes=shapes, source="catalogue")
        yield (
            f"plan, closed formulas: {len(shapes)} GPU kinds",
            lambda inventory=inventory: plan_deployment(spec, inventory, simulate=False),  # type: ignore[misc]
        )


def _renamed(shape: NodeShape, copy: int) -> NodeShape:
    return replace(shape, gpu=replace(shape.gpu, id=f"{shape.gpu.id}-{copy}" if copy else shape.gpu.id))


def cold_plan(sample: Path) -> Callable[[], object]:
    """Return ``vlmctl plan --no-simulation`` in a new process, compiled files kept as an installation keeps them."""
    command = [sys.executable, "-m", "vlm_operator.cli.main", "plan", "--no-simulation", "-f", str(sample)]
    kept = tempfile.TemporaryDirectory(prefix="vlm-operator-bench-")
    environment = {**os.environ, "PYTHONPATH": str(Path(load.__file__).parents[2]), "PYTHONPYCACHEPREFIX": kept.name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def start() -> None:
        assert Path(kept.name).is_dir()  # kept for as long as it is started again
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    return start
