"""Published start-up logs as conditions: the flags of the server, its GPU, and what it profiled its encoder with.

The rows are free text of many hands. What a row does not say is the default of its release; what cannot be understood
makes the row unscored, never guessed.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tests.accuracy.benchmarks import DATA, PublishedRow
from tests.accuracy.fields import count
from tests.accuracy.releases import FIRST_SCORED, Release, default_batch, parse_version, release_of
from vlm_operator.catalogue.load import all_gpus
from vlm_operator.catalogue.types import GpuCard
from vlm_operator.errors import CatalogueError
from vlm_operator.sizing.inventory import GpuKind, kind_from_card
from vlm_operator.sizing.weights import EncoderMode
from vlm_operator.units import GIB, MIB

OTHER_VENDORS = r"amd|gfx\d|radeon|instinct|\bmi\d{2,3}|rocm|ascend|\bnpu|gaudi|\btpu|\bxpu|intel|trainium|inferentia"
OTHER_ENGINES = r"\bv0\b|fork|ascend|rocm"
UNMODELLED = {
    r"pipeline.parallel.size[ =]+[2-9]|\bpp[ =]?[2-9]": "pipeline parallel stages hold unequal parts",
    r"speculative|\bmtp\b|\beagle|draft": "a draft model runs beside the model",
    r"enable.lora": "adapters are held beside the model",
    r"offload": "part of the weights or of the cache is not on the GPU",
    r"kv.cache.memory|num.gpu.blocks": "the cache was given, not measured",
}
"""Flags under which the engine holds what the product never asks of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The items of the encoder's profile as the log states them."""

    items: int
    modality: str
    budget_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConditions:
    """One start-up log's conditions."""

    gpu: GpuKind
    release: Release
    tensor_parallel_size: int
    utilization: float
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    eager: bool
    image_limit: int
    video_limit: int
    largest_graph: int | None
    kv_dtype: str
    encoder_mode: EncoderMode
    skips_encoder: bool
    max_pixels: int | None
    profiled: Profiled | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """Why a row cannot be compared."""

    why: str


@cache
def _stated_elsewhere() -> Mapping[str, Mapping[str, str]]:
    conditions: Mapping[str, Mapping[str, str]] = json.loads((DATA / "log_conditions.json").read_text())
    return conditions


def complete_log(row: PublishedRow) -> PublishedRow:
    """Return the row with what its source says of the server and the row leaves out."""
    more = _stated_elsewhere().get(str(row.get("source")), {})
    return {**row, **more, "flags": f"{row.get('flags') or ''} {more.get('flags', '')}".strip()}


def read_conditions(row: PublishedRow) -> LogConditions | NotUnderstood:
    """Return the conditions of one row, or why it has no place among the scored ones.

    Raises:
        UnclearRowError: A field of the row cannot be read.
    """
    refused = _other_world(row)
    if refused:
        return NotUnderstood(why=refused)
    version = parse_version(str(row.get("vllm") or ""))
    if version is None:
        return NotUnderstood(why="the release is not stated")
    if version < FIRST_SCORED:
        return NotUnderstood(why=f"release {version[0]}.{version[1]} runs the engine before V1")
    gpu = read_gpu(str(row.get("gpu") or ""))
    if gpu is None:
        return NotUnderstood(why="the GPU, or what the engine sees of its memory, is not stated")
    return read_flags(row, gpu, release_of(version))


def read_flags(row: PublishedRow, gpu: GpuKind, release: Release) -> LogConditions:
    """Return the conditions under the row's flags and, where they do not say, the release's defaults."""
    flags, engine = str(row.get("flags") or ""), str(row.get("vllm"))
    offline = "offline" in engine or "LLM(" in engine + flags
    tokens, sequences = default_batch(release, gpu.engine_memory_bytes, gpu.product, offline=offline)
    return LogConditions(
        gpu=gpu,
        release=release,
        tensor_parallel_size=count(row, "tp") or _number(flags, "tensor.parallel.size") or 1,
        utilization=_fraction(flags) or release.utilization,
        max_model_len=_number(flags, "max.model.len"),
        max_num_seqs=_number(flags, "max.num.seqs") or sequences,
        max_num_batched_tokens=_number(flags, "mnbt|max.num.batched.tokens") or tokens,
        eager="enforce-eager" in flags or "enforce_eager" in flags,
        image_limit=_limit(flags, "image"),
        video_limit=_limit(flags, "video"),
        largest_graph=_number(flags, "max.cudagraph.capture.size"),
        kv_dtype="fp8" if re.search(r"kv.cache.dtype[ =]*fp8|kv fp8", flags) else "auto",
        encoder_mode="data" if re.search(r"mm.encoder.tp.mode\W+data", flags) else "weights",
        skips_encoder="skip-mm-profiling" in flags,
        max_pixels=_number(flags, r"max_pixels\W*"),
        profiled=_profiled(row),
    )


def _other_world(row: PublishedRow) -> str:
    """Return why the row is of no engine or GPU that the product knows; empty where it may be."""
    engine, gpu = str(row.get("engine") or ""), str(row.get("gpu") or "").lower()
    release = str(row.get("vllm") or "").lower()
    if engine and "vllm" not in engine.lower():
        return f"another engine ({engine})"
    found = re.search(OTHER_VENDORS, gpu)
    if found:
        return f"another vendor's GPU ({found.group()})"
    found = re.search(OTHER_ENGINES, release)
    if found:
        return f"another engine ({found.group()})"
    said = f"{row.get('flags') or ''} {row.get('model') or ''}".lower() + f" pp{row.get('pp') or 1}"
    return next((why for flag, why in UNMODELLED.items() if re.search(flag, said)), "")


def read_gpu(text: str) -> GpuKind | None:
    """Return the catalogue's GPU that ``text`` names, with the memory that the text states; None without either.

    A text that names no product but states what the engine sees (``48GB-class (~47 GiB derived)``) is a GPU of that
    memory.
    """
    total = _stated_gib(text)
    card = _named_card(text)
    if card is None and total is None:
        return None
    try:
        kind = kind_from_card(card or next(c for c in all_gpus() if c.id == "l40s"))
    except CatalogueError:
        return None
    if total is None:
        return kind
    return _with_memory(kind, int(total * GIB), named=card is not None)


def _with_memory(kind: GpuKind, size: int, *, named: bool) -> GpuKind:
    fields = {name: getattr(kind, name) for name in GpuKind.__slots__}
    if not named:
        fields |= {"id": "unnamed", "product": "", "display_name": "unnamed"}
    return GpuKind(**{**fields, "engine_memory_bytes": size, "driver_memory_bytes": max(size, 512 * MIB)})


def _named_card(text: str) -> GpuCard | None:
    words = set(re.findall(r"[a-z0-9]+", re.sub(r"(\dgb)", r"\1 ", text.lower())))
    found = []
    for card in all_gpus():
        parts = card.id.split("-")
        name = [p for p in parts if not p.endswith("gb") and p not in {"sxm", "pcie", "rtx", "nvl", "server"}]
        if card.vendor == "nvidia" and all(part in words for part in name):
            extra = sum(part in words for part in parts)
            memory = 2 * any(part in words for part in parts if part.endswith("gb"))
            found.append((extra + memory, "sxm" in parts, len(name), card))
    return max(found, key=lambda entry: entry[:3])[3] if found else None


def _stated_gib(text: str) -> float | None:
    found = re.search(r"([\d.]+)(?:-([\d.]+))? ?GiB", text)
    if found is None:
        return None
    low, high = float(found.group(1)), float(found.group(2) or found.group(1))
    return (low + high) / 2


def _number(flags: str, name: str) -> int | None:
    found = re.search(rf"(?:{name})[ =]+(\d+)", flags)
    return int(found.group(1)) if found else None


def _fraction(flags: str) -> float | None:
    found = re.search(r"(?:util|gpu.memory.utilization)[ =]+(0?\.\d+|1\.0)", flags)
    return float(found.group(1)) if found else None


def _limit(flags: str, modality: str) -> int:
    """Return how many items of ``modality`` a prompt may carry; 999 is the engine's default."""
    found = re.search(rf"\b{modality}\W{{1,4}}(\d+)", flags)
    return int(found.group(1)) if found else 999


def _profiled(row: PublishedRow) -> Profiled | None:
    found = re.match(r"(\d+) (image|video|audio)", str(row.get("profiled") or ""))
    budget = count(row, "encoder_budget_tokens")
    if found is None or budget is None:
        return None
    return Profiled(items=max(1, int(found.group(1))), modality=found.group(2), budget_tokens=budget)
