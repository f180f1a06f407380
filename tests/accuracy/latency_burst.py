"""Published runs in which every request is sent at once, beside the simulation of one of their replicas."""

import re
from dataclasses import dataclass
from random import Random

from tests.accuracy.benchmarks import PublishedRow
from tests.accuracy.serving_row import accuracy_row, gpu_of, model_of
from tests.accuracy.table import AccuracyRow
from vlm_operator.catalogue.load import latency_calibration
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.latency import Layout, step_model, with_interval
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.traffic import (
    ClosedLoop,
    KVBlocks,
    Lengths,
    RequestKind,
    RequestMix,
    ServerLimits,
    TrafficRun,
    simulate,
)

BURST = re.compile(r"random text (\d+)/(\d+) x ?(\d+), rate inf")
"""Input and output tokens of requests that are sent at once, and how many they are."""

BATCHED_TOKENS = 2048
"""The engine's default on every card below 70 GiB and on the A100 (fact sheet 1.3)."""
BLOCK_TOKENS = 16
UTILISATION = 0.9
OTHER_BYTES = 4e9
"""Activations, graphs and what lies outside the allocator, on top of the weights: the memory model's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Requests that are sent at once: tokens of each, and how many one replica gets."""

    input_tokens: int
    output_tokens: int
    requests: int


def read_burst(row: PublishedRow) -> Burst | None:
    """Return the burst that a row describes, spread evenly over its replicas; None where it describes another load."""
    found = BURST.search(str(row.get("workload", "")))
    if found is None:
        return None
    replicas = int(row.get("dp") or 1)
    return Burst(input_tokens=int(found[1]), output_tokens=int(found[2]), requests=int(found[3]) // replicas)


def compare_burst(row: PublishedRow, burst: Burst) -> tuple[AccuracyRow, ...]:
    """Return median TTFT and TPOT; means hang on the few outputs that end early, which no row tells."""
    model, gpu = model_of(row), gpu_of(row)
    if model is None or gpu is None:
        return (accuracy_row(row, "median TTFT", "s", published=None, why_not="its model or its GPU is not known"),)
    calibration = latency_calibration()
    ranks = int(row.get("tp") or 1)
    costs = step_model(model.shape, Layout(gpu=gpu, ranks=ranks), calibration)
    limits = ServerLimits(
        max_num_seqs=256,
        max_num_batched_tokens=BATCHED_TOKENS,
        kv=KVBlocks(total=_kv_blocks(model.shape, gpu, ranks)),
        prefix_caching=False,
    )
    kind = RequestKind(weight=1, text=Lengths.fixed(burst.input_tokens), output=Lengths.fixed(burst.output_tokens))
    loop = ClosedLoop(clients=burst.requests, requests=burst.requests)
    run = TrafficRun(mix=RequestMix(kinds=(kind,)), arrivals=loop, limits=limits)
    result = simulate(run, costs, Random(1))  # noqa: S311 - traffic, not secrets
    results = row["results"]
    first = with_interval(result.ttft.percentiles[50], "ttft", costs.speed.evidence, calibration)
    later = with_interval(result.tpot.percentiles[50], "tpot", costs.speed.evidence, calibration)
    return (
        _seconds(row, "median TTFT", results["ttft_ms"]["p50"], (first.value, first.low, first.high)),
        _seconds(row, "median TPOT", results["tpot_ms"]["p50"], (later.value, later.low, later.high)),
    )


def _seconds(row: PublishedRow, quantity: str, published: float, predicted: tuple[float, float, float]) -> AccuracyRow:
    value, low, high = predicted
    return accuracy_row(row, quantity, "s", published=published / 1000, predicted=value, interval=(low, high))


def _kv_blocks(shape: ModelShape, gpu: GpuKind, ranks: int) -> int:
    text = shape.text
    weights = sum(weight.measure(ranks, text.dtype_bytes)[1] for weight in (*text.weights, *shape.vision.weights))
    token = text.layers * max(1, text.kv_heads // ranks) * 2 * text.head_dim * text.dtype_bytes
    room = gpu.engine_memory_bytes * UTILISATION - weights - OTHER_BYTES
    return max(0, int(room / token / BLOCK_TOKENS))
