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
from tests.accuracy.releases import FIRST_SCORED, Release, default_batch, parse_version, release_of
from vlm_operator.catalogue.load import all_gpus
from vlm_operator.catalogue.types import GpuCard
from vlm_operator.errors import CatalogueError
from vlm_operator.sizing.inventory import GpuKind, kind_from_card
from vlm_operator.units import GIB, MIB

OTHER_VENDORS = ("amd", "gfx", "ascend", "npu", "gaudi", "tpu", "radeon", "instinct", "xpu")
OTHER_ENGINES = ("v0 ", "fork", "ascend", "turbomind", "sglang", "lmdeploy")


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
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    eager: bool
    image_limit: int
    video_limit: int
    largest_graph: int | None
    block_size: int | None
    kv_dtype: str
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
    """Return the conditions of one row, or why it has no place among the scored ones."""
    engine = str(row.get("vllm") or row.get("engine") or "")
    gpu_text = str(row.get("gpu") or "")
    refused = _other_world(engine, gpu_text)
    if refused:
        return NotUnderstood(why=refused)
    version = parse_version(engine)
    if version is None:
        return NotUnderstood(why="the release is not stated")
    if version < FIRST_SCORED:
        return NotUnderstood(why=f"release {version[0]}.{version[1]} runs the engine before V1")
    gpu = read_gpu(gpu_text)
    if gpu is None:
        return NotUnderstood(why="the GPU, or what the engine sees of its memory, is not stated")
    release = release_of(version)
    return _read_flags(row, gpu, release, offline="offline" in engine or "LLM" in engine)


def _read_flags(row: PublishedRow, gpu: GpuKind, release: Release, *, offline: bool) -> LogConditions | NotUnderstood:
    flags = str(row.get("flags") or "")
    length = _number(flags, "max.model.len")
    if length is None:
        return NotUnderstood(why="max_model_len is not stated")
    tokens, sequences = default_batch(release, gpu.engine_memory_bytes, gpu.product, offline=offline)
    return LogConditions(
        gpu=gpu,
        release=release,
        tensor_parallel_size=int(row.get("tp") or _number(flags, "tensor.parallel.size") or 1),
        utilization=_fraction(flags) or release.utilization,
        max_model_len=length,
        max_num_seqs=_number(flags, "max.num.seqs") or sequences,
        max_num_batched_tokens=_number(flags, "mnbt|max.num.batched.tokens") or tokens,
        eager="enforce-eager" in flags or "enforce_eager" in flags,
        image_limit=_limit(flags, "image"),
        video_limit=_limit(flags, "video"),
        largest_graph=_number(flags, "max.cudagraph.capture.size"),
        block_size=_number(flags, "block.size"),
        kv_dtype="fp8" if re.search(r"kv.cache.dtype[ =]*fp8|kv fp8", flags) else "auto",
        profiled=_profiled(row),
    )


def _other_world(engine: str, gpu: str) -> str:
    engine, gpu = engine.lower() + " ", gpu.lower()
    for word in OTHER_VENDORS:
        if word in gpu:
            return f"another vendor's GPU ({word})"
    for word in OTHER_ENGINES:
        if word in engine:
            return f"another engine ({word.strip()})"
    return ""


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
    words = set(re.findall(r"[a-z0-9]+", text.lower().replace("gb", "gb ")))
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
    if found is None or not row.get("encoder_budget_tokens"):
        return None
    return Profiled(items=int(found.group(1)), modality=found.group(2), budget_tokens=int(row["encoder_budget_tokens"]))
