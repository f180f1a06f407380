"""The only reader of the catalogue files. Every entry is read on first use and kept.

``python -m vlm_operator.catalogue.load`` reports every problem of every file; it exits with 1 if
there is any.
"""

import difflib
import sys
from collections.abc import Callable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from vlm_operator.catalogue.labels import spellings
from vlm_operator.catalogue.types import (
    ClassDefaults,
    EngineCard,
    FlagRule,
    FlagRules,
    GpuCard,
    KernelSpeeds,
    LatencyCalibration,
    LatencyFigures,
    Licence,
    MemoryCalibration,
    ModelCard,
)
from vlm_operator.errors import CatalogueError

_MOST_NAMES = 3
"""Names that an error suggests."""
_SUFFIX = ".yaml"
_LICENCES = "licences.yaml"
_FLAG_RULES = "extra_args.yaml"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Entry = TypeVar("_Entry", bound=BaseModel)
_Parsed = TypeVar("_Parsed")


def _folder(kind: str) -> Traversable:
    return resources.files("vlm_operator.catalogue").joinpath(kind)


def _stems(kind: str) -> tuple[str, ...]:
    names = (entry.name for entry in _folder(kind).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


def _parse(name: str, parse: Callable[[Any], _Parsed]) -> _Parsed:
    """Read and validate one file; every complaint about it ends up in one error."""
    text = resources.files("vlm_operator.catalogue").joinpath(name).read_text(encoding="utf-8")
    try:
        return parse(yaml.load(text, Loader=_LOADER))  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise CatalogueError(f"{name}: not YAML: {error}") from error
    except ValidationError as error:
        complaints = (f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
        raise CatalogueError(f"{name}: " + "; ".join(complaints)) from error


def _read(kind: str, stem: str, entry_type: type[_Entry]) -> _Entry:
    return _parse(f"{kind}/{stem}{_SUFFIX}", entry_type.model_validate)


def _nearest(wanted: str, known: tuple[str, ...]) -> str:
    """The known names that contain the wanted one, then those most like it, whatever the case of their letters."""
    by_lower = {name.lower(): name for name in known}
    containing = [name for name in by_lower if wanted and wanted.lower() in name]
    close = difflib.get_close_matches(wanted.lower(), list(by_lower), n=_MOST_NAMES, cutoff=0.5)
    return ", ".join(by_lower[name] for name in tuple(dict.fromkeys(containing + close))[:_MOST_NAMES])


@cache
def model_ids() -> tuple[str, ...]:
    """The ids of all checkpoints, sorted; read from file names only."""
    return tuple(stem.replace("--", "/", 1) for stem in _stems("models"))


@cache
def find_model(model_id: str) -> ModelCard:
    """The card of one checkpoint.

    Args:
        model_id: The id as the Hugging Face hub writes it, e.g. ``Qwen/Qwen2.5-VL-7B-Instruct``.

    Returns:
        The card.

    Raises:
        CatalogueError: There is no such checkpoint, or its file is invalid.
    """
    if model_id not in model_ids():
        near = _nearest(model_id, model_ids())
        hint = f"; nearest: {near}" if near else ""
        raise CatalogueError(
            f"model {model_id!r} is not in the catalogue{hint}. All that can be sized: vlmctl catalogue models"
        )
    return _read("models", model_id.replace("/", "--", 1), ModelCard)


@cache
def all_licences() -> tuple[Licence, ...]:
    """Every licence whose models are known."""
    return tuple(_parse(_LICENCES, TypeAdapter(list[Licence]).validate_python))


def find_licence(model_id: str) -> Licence | None:
    """The licence of a model's weights, None where it is not known; the longest matching prefix decides."""
    matching = ((prefix, entry) for entry in all_licences() for prefix in entry.prefixes if model_id.startswith(prefix))
    longest = max(matching, key=lambda pair: len(pair[0]), default=None)
    return None if longest is None else longest[1]


@cache
def find_engine(version: str) -> EngineCard:
    """The flags of one release of the engine.

    Raises:
        CatalogueError: There is no such release, or its file is invalid.
    """
    stem = f"vllm-{version}"
    if stem not in _stems("engines"):
        known = ", ".join(name.removeprefix("vllm-") for name in _stems("engines"))
        raise CatalogueError(f"engine version {version!r} is not in the catalogue, which knows {known}")
    return _read("engines", stem, EngineCard)


@cache
def flag_rules(version: str) -> dict[str, FlagRule]:
    """The rule for each flag of one release of the engine, by dest.

    Raises:
        CatalogueError: There is no such release, the file is invalid, or a flag has no rule or more than one.
    """
    engine = find_engine(version)
    known = _parse(_FLAG_RULES, FlagRules.model_validate)
    named = [dest for rule in known.rules for dest in rule.flags]
    wrong = {*named} ^ {flag.dest for flag in engine.flags} | {dest for dest in named if named.count(dest) > 1}
    if wrong or known.version != engine.version:
        flags = ", ".join(sorted(wrong))
        raise CatalogueError(
            f"{_FLAG_RULES}: vLLM {version} and {known.version} differ, or one rule each lacks: {flags}"
        )
    return {dest: rule for rule in known.rules for dest in rule.flags}


@cache
def class_defaults() -> ClassDefaults:
    """The defaults of configuration classes, for what sparse config.json files leave out."""
    return _parse("class_defaults.yaml", ClassDefaults.model_validate)


@cache
def memory_calibration() -> MemoryCalibration:
    """The calibrated constants of the memory model."""
    return _read("calibration", "memory", MemoryCalibration)


@cache
def latency_calibration() -> LatencyCalibration:
    """The calibrated figures of the latency model and the kernel tables of every GPU that has them."""
    figures = _read("calibration", "latency", LatencyFigures)
    kernels = _parse("calibration/kernels.yaml", TypeAdapter(tuple[KernelSpeeds, ...]).validate_python)
    return LatencyCalibration(**{name: getattr(figures, name) for name in LatencyFigures.model_fields}, kernels=kernels)


@cache
def gpu_ids() -> tuple[str, ...]:
    """The ids of all GPUs, sorted; read from file names only."""
    return _stems("gpus")


@cache
def _gpu(gpu_id: str) -> GpuCard:
    return _read("gpus", gpu_id, GpuCard)


def all_gpus() -> tuple[GpuCard, ...]:
    """Every GPU card, in the order of :func:`gpu_ids`; reads all GPU files the first time."""
    return tuple(_gpu(gpu_id) for gpu_id in gpu_ids())


@cache
def _gpus_by_label() -> dict[str, GpuCard]:
    return {spelling: card for card in all_gpus() for label in card.labels for spelling in spellings(label)}


@cache
def find_gpu(id_or_label: str) -> GpuCard:
    """The card of one GPU.

    Args:
        id_or_label: The catalogue id (``h100-80gb-sxm``) or a whole GPU's product label
            (``NVIDIA-H100-80GB-HBM3``). A label of a MIG slice or a shared GPU is not a whole GPU: take it
            apart first with :func:`vlm_operator.catalogue.labels.parse_product_label`.

    Returns:
        The card.

    Raises:
        CatalogueError: There is no such GPU, or its file is invalid.
    """
    if id_or_label in gpu_ids():
        return _gpu(id_or_label)
    labels = _gpus_by_label()
    if id_or_label in labels:
        return labels[id_or_label]
    near = _nearest(id_or_label, gpu_ids() + tuple(label for card in all_gpus() for label in card.labels))
    hint = f"; nearest: {near}" if near else ""
    raise CatalogueError(
        f"GPU {id_or_label!r} is not in the catalogue{hint}. All that are known: vlmctl catalogue gpus"
    )


def _check_model(model_id: str) -> list[str]:
    card = find_model(model_id)
    problems = []
    if card.id != model_id:
        problems.append(f"id is {card.id!r}, the file name says {model_id!r}")
    if card.architecture not in card.config.get("architectures", ()):
        problems.append(f"config.architectures lacks {card.architecture!r}")
    if (card.parameters is None) != (card.parameters_provenance is None):
        problems.append("parameters and parameters_provenance go together: give both or neither")
    if not card.served and card.last_engine_version is None:
        problems.append("a model that is not served needs last_engine_version")
    return [f"models/{model_id.replace('/', '--', 1)}{_SUFFIX}: {problem}" for problem in problems]


def _check_gpu(gpu_id: str) -> list[str]:
    card = _gpu(gpu_id)
    problems = []
    if card.id != gpu_id:
        problems.append(f"id is {card.id!r}, the file name says {gpu_id!r}")
    if card.vendor == "nvidia" and not (card.labels and card.compute_capability):
        problems.append("an NVIDIA GPU needs labels and compute_capability")
    if (card.engine_memory_gib is None) != (card.engine_memory_provenance.certainty == "unknown"):
        problems.append("engine_memory_gib is null if and only if its certainty is 'unknown'")
    if card.engine_memory_gib and card.driver_memory_mib and card.engine_memory_gib * 1024 > card.driver_memory_mib:
        problems.append("engine_memory_gib is more than the driver's figure")
    cheapest = min((o.usd_per_hour / o.gpus for o in card.offers), default=None)
    priced = card.price.usd_per_gpu_hour if card.price else None
    if (None if cheapest is None else round(cheapest, 4)) != priced:
        problems.append(f"price is {priced}, the cheapest offer comes to {cheapest}")
    return [f"gpus/{gpu_id}{_SUFFIX}: {problem}" for problem in problems]


def _check_labels(cards: list[GpuCard]) -> list[str]:
    owners: dict[str, str] = {}
    problems = []
    for card in cards:
        for label in card.labels:
            owner = owners.setdefault(label, card.id)
            if owner != card.id:
                problems.append(f"gpus/{card.id}{_SUFFIX}: label {label!r} belongs to {owner} already")
    return problems


def validate_all() -> list[str]:
    """Read every file of the catalogue.

    Returns:
        Every problem of every file, each beginning with the file's name; empty when all is well.
    """
    problems: list[str] = []
    cards: list[GpuCard] = []
    for model_id in model_ids():
        try:
            problems += _check_model(model_id)
        except CatalogueError as error:
            problems.append(str(error))
    for gpu_id in gpu_ids():
        try:
            problems += _check_gpu(gpu_id)
            cards.append(_gpu(gpu_id))
        except CatalogueError as error:
            problems.append(str(error))
    try:
        memory_calibration()
        latency_calibration()
        class_defaults()
        for stem in _stems("engines"):
            flag_rules(stem.removeprefix("vllm-"))
        prefixes = [prefix for entry in all_licences() for prefix in entry.prefixes]
        problems += [f"{_LICENCES}: {p} is named twice" for p in sorted(set(prefixes)) if prefixes.count(p) > 1]
    except CatalogueError as error:
        problems.append(str(error))
    return problems + _check_labels(cards)


def main() -> int:
    """Print every problem of the catalogue.

    Returns:
        1 if there is any, else 0.
    """
    problems = validate_all()
    for problem in problems:
        sys.stdout.write(problem + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
