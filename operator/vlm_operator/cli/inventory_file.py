"""``--inventory``: the catalogue, the cluster, or a YAML list of node shapes -> Inventory."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from vlm_operator.catalogue.labels import parse_product_label
from vlm_operator.catalogue.load import find_gpu
from vlm_operator.cli.inputs import SourcedInputError, display_name, read_text
from vlm_operator.errors import CatalogueError, InputError, Problem
from vlm_operator.planning import catalogue_inventory
from vlm_operator.sizing.inventory import (
    GpuKind,
    GpuRefusal,
    Inventory,
    NodeShape,
    Resources,
    kind_from_label,
    node_shape,
)
from vlm_operator.units import GIB

_COUNTS: Final = {"gpusPerNode": True, "nodes": False, "cpuCores": False, "memoryGiB": False}
"""Fields that hold a whole number, and whether they are required."""
_FIELDS: Final = ("gpu", *_COUNTS, "hourlyCents")
_EXAMPLE = "- {gpu: NVIDIA-L40S, gpusPerNode: 4, nodes: 2}"


InventoryFor = Callable[[str, str, Mapping[str, Any]], Inventory]
"""What an object, given its namespace, its name and itself, could have: its own pods count as free for it."""


def open_inventory(source: str) -> InventoryFor:
    """Return the inventory that ``--inventory`` names, read once.

    Raises:
        InputError: The file cannot be used; every problem in it is listed.
        ClusterError: The cluster did not answer.
    """
    if source == "cluster":
        from vlm_operator.cli.live import cluster_snapshot  # noqa: PLC0415 - loads the Kubernetes client
        from vlm_operator.cluster.inventory import build_inventory  # noqa: PLC0415 - likewise
        from vlm_operator.cluster.placement import placement_of  # noqa: PLC0415 - likewise

        snapshot = cluster_snapshot()
        return lambda namespace, name, body: build_inventory(snapshot, (namespace, name), placement_of(body))
    catalogue = source == "catalogue"
    inventory = catalogue_inventory() if catalogue else parse_inventory(read_text(source), display_name(source))
    return lambda _namespace, _name, _body: inventory


def parse_inventory(text: str, source: str) -> Inventory:
    """Return the inventory that the YAML list ``text`` describes.

    Raises:
        InputError: ``text`` is not such a list; every problem in it is listed.
    """
    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _wrong(source, [Problem(path="", message=f"not YAML: {_one_line(error)}")]) from None
    if not isinstance(entries, list) or not entries:
        message = f"an inventory is a YAML list of node shapes, such as {_EXAMPLE}"
        raise _wrong(source, [Problem(path="", message=message)])
    kinds = {shape.gpu.id: shape.gpu for shape in catalogue_inventory().shapes}
    found: list[tuple[GpuKind, dict[str, Any]]] = []
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        wrong = _problems_of(entry, f"[{index}]")
        kind = None if wrong else _find_kind(entry["gpu"], kinds, f"[{index}].gpu", wrong)
        problems.extend(wrong)
        if kind is not None:
            found.append((_priced(kind, entry), entry))
    if problems:
        raise _wrong(source, problems)
    return Inventory(shapes=tuple(_shapes(found)), source="file")


def _problems_of(entry: Any, path: str) -> list[Problem]:
    if not isinstance(entry, dict):
        return [Problem(path=path, message=f"a node shape is a mapping, such as {_EXAMPLE}")]
    problems = [
        Problem(path=f"{path}.{key}", message=f"not a field; there are {', '.join(_FIELDS)}")
        for key in entry
        if key not in _FIELDS
    ]
    if not isinstance(entry.get("gpu"), str):
        problems.append(Problem(path=f"{path}.gpu", message="required: a node label or a catalogue id"))
    for key, required in _COUNTS.items():
        if (required or key in entry) and not _whole(entry.get(key)):
            problems.append(
                Problem(path=f"{path}.{key}", message=f"{entry.get(key)!r} is not a whole number of at least 1")
            )
    cents = entry.get("hourlyCents", 0)
    if isinstance(cents, bool) or not isinstance(cents, int | float) or not 0 <= cents < float("inf"):
        problems.append(Problem(path=f"{path}.hourlyCents", message=f"{cents!r} is not a price in cents per GPU-hour"))
    return problems


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _find_kind(name: str, kinds: dict[str, GpuKind], path: str, problems: list[Problem]) -> GpuKind | None:
    label = parse_product_label(name)
    try:
        card = find_gpu(label.product)
    except CatalogueError as error:
        problems.append(Problem(path=path, message=str(error)))
        return None
    if card.id not in kinds:
        message = f"{name!r} is in the catalogue, but too little is known of it to plan with"
        problems.append(Problem(path=path, message=message))
        return None
    if name == card.id:
        return kinds[card.id]
    kind = kind_from_label(card, label, name)
    if isinstance(kind, GpuRefusal):
        problems.append(Problem(path=path, message=f"{name!r}: {kind.message}"))
        return None
    return kind


def _priced(kind: GpuKind, entry: dict[str, Any]) -> GpuKind:
    if "hourlyCents" not in entry:
        return kind
    return dataclasses.replace(kind, hourly_cents=float(entry["hourlyCents"]), price_note="inventory file")


def _shapes(entries: Sequence[tuple[GpuKind, dict[str, Any]]]) -> Iterator[NodeShape]:
    """Yield a shape for each entry that says no number of nodes, and one for all other nodes of each kind."""
    counted: defaultdict[GpuKind, list[Resources]] = defaultdict(list)
    for kind, entry in entries:
        memory = entry.get("memoryGiB")
        node = Resources(
            gpus=entry["gpusPerNode"],
            cpu_cores=entry.get("cpuCores"),
            memory_bytes=None if memory is None else memory * GIB,
        )
        if "nodes" in entry:
            counted[kind] += [node] * entry["nodes"]
        else:
            yield node_shape(kind, [node], None)
    for kind, nodes in counted.items():
        yield node_shape(kind, nodes, nodes)


def _wrong(source: str, problems: list[Problem]) -> InputError:
    return SourcedInputError(problems, source)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
