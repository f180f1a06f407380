"""Published serving runs of vision-language models beside the closed formulas: one request at a time, end to end."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.accuracy.benchmarks import PublishedRow, load_published
from tests.accuracy.latency_burst import compare_burst, read_burst
from tests.accuracy.models import PublishedModel
from tests.accuracy.serving_row import accuracy_row, gpu_of, model_of
from tests.accuracy.table import AccuracyRow
from vlm_operator.catalogue.load import latency_calibration
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.latency import (
    Layout,
    Replica,
    RequestWork,
    request_seconds,
    step_model,
    with_interval,
)
from vlm_operator.sizing.tokens.types import ImageTokens

FIRST_COMPILED = (0, 8)
"""The first release whose models are compiled: until then every norm, activation and rotary embedding was a kernel."""
UNCOMPILED_KERNELS = 6.9
"""Fixed time of such a layer, in that of the GPU's own decode attention, which goes with its clock: 6.8 by the rows of
A100 (137 us), 7.1 by those of A6000 (95 us)."""
SLOW_PROCESSOR = 0.13
"""Seconds per megapixel of that time's image processors: what 3.8 megapixels took more than 0.2, less encoder and
prompt; today's figure is in the catalogue."""
THROUGHPUT_LOAD = "the load at which the throughput was reached is not stated"


def serving_rows(benchmarks: Path | None = None) -> Sequence[AccuracyRow]:
    """Return the latency and the throughput of each published serving run."""
    return tuple(made for row in load_published("serving", benchmarks) for made in _compare(row))


def _compare(row: PublishedRow) -> tuple[AccuracyRow, ...]:
    results = row.get("results") or {}
    burst = read_burst(row)
    if burst is not None:
        return compare_burst(row, burst)
    latency = results.get("single_stream_latency_s_derived_from_QPD") or results.get("single_stream_latency_s")
    most = results.get("max_throughput_qps_derived_from_QPD") or results.get("max_throughput_qps")
    missing = _missing(row, latency)
    if missing or latency is None:
        return (accuracy_row(row, "end to end", "s", published=latency, why_not=missing),)
    model = model_of(row)
    gpu = gpu_of(row)
    size = re.fullmatch(r"(\d+)x(\d+)", str(row["image_size"]))
    if model is None or model.rule is None or gpu is None or size is None:
        why = "the model is not known well enough" if model is None else "its image size or GPU cannot be read"
        return (accuracy_row(row, "end to end", "s", published=latency, why_not=why),)
    work = _work(row, model, (int(size[1]), int(size[2])))
    if work is None:
        return (accuracy_row(row, "end to end", "s", published=latency, why_not="its images cannot be counted"),)
    return _predict(row, model, gpu, work, latency, most)


def _predict(
    row: PublishedRow, model: PublishedModel, gpu: GpuKind, work: RequestWork, latency: float, most: float | None
) -> tuple[AccuracyRow, ...]:
    calibration = latency_calibration()
    counts = row.get("gpu_counts") or {}
    ranks = int(counts.get("single_stream") or row.get("tp") or row.get("gpu_count") or 1)
    costs = step_model(model.shape, Layout(gpu=gpu, ranks=ranks), calibration)
    if _release(row) < FIRST_COMPILED:
        kernel = costs.speed.kernels.decode_attention_microseconds["bf16"] / 1e6
        more = UNCOMPILED_KERNELS * kernel - costs.speed.layer_fixed("bf16", "auto")
        costs = replace(costs, fixed=costs.fixed + costs.work.layers * max(0.0, more))
        prepared = costs.preprocess(work.megapixels, work.patches)
        late = max(0.0, SLOW_PROCESSOR * work.megapixels - prepared)
    else:
        late = 0.0
    seconds = late + request_seconds(Replica(costs=costs), work, work, 1).total
    end = with_interval(seconds, "total", costs.speed.evidence, calibration)
    made = [accuracy_row(row, "end to end", "s", published=latency, predicted=end.value, interval=(end.low, end.high))]
    if most:
        made.append(accuracy_row(row, "throughput", "requests/s", published=most, why_not=THROUGHPUT_LOAD))
    return tuple(made)


def _release(row: PublishedRow) -> tuple[int, int]:
    """Return the engine's release; one that is not stated counts as a present one."""
    found = re.search(r"(\d+)\.(\d+)", str(row.get("engine", "")))
    return (int(found[1]), int(found[2])) if found else FIRST_COMPILED


def _missing(row: PublishedRow, latency: float | None) -> str:
    """Return what a row lacks, or why it is not ours to predict; empty where it can be compared."""
    engine = str(row.get("engine") or (row.get("conditions") or {}).get("engine", "")).lower()
    if "fork" in engine:
        return "a fork of the engine with a scheduler of its own"
    if "vllm" not in engine:
        return "another engine, or it is not stated"
    lacking = [name for name in ("model", "gpu", "image_size", "out_tokens") if not row.get(name)]
    if lacking:
        return f"it does not state {' and '.join(name.replace('_', ' ') for name in lacking)}"
    return "" if latency else "it states no latency of single requests"


def _work(row: PublishedRow, model: PublishedModel, size: tuple[int, int]) -> RequestWork | None:
    images = int(row.get("images_per_request") or 1)
    assert model.rule is not None
    counted = model.rule.count_image(*size)
    if not isinstance(counted, ImageTokens):
        return None
    tiles = counted.tiles or 1
    return RequestWork(
        megapixels=images * size[0] * size[1] / 1e6,
        patches=images * counted.vit_patches,
        prompt_tokens=images * counted.prompt_tokens + int(row.get("text_in") or 0),
        output_tokens=int(row["out_tokens"]),
        images=images,
        span=counted.vit_patches / tiles,
    )
