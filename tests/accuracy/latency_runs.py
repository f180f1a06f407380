"""Published closed-loop runs of language models as the simulation takes them: shape, layout, limits, lengths.

What the rows are (the table states none of it): ``b`` clients each keep one request in flight, ten requests a client
in all; lengths lie between 0.8 and 1 of ``isl`` and ``osl``, but are fixed in the rows of release 0.12.0. The engine's
settings are those under which the rows are consistent: 8,192 batched tokens (published), one prompt and a half beside
the clients' tokens for release 0.12.0 (inferred); KV cache in BF16 on H100, in FP8 on H200 and B200 (inferred).
"""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import nan
from pathlib import Path
from random import Random
from typing import Any

from vlm_operator.catalogue.load import find_gpu
from vlm_operator.catalogue.types import LatencyCalibration
from vlm_operator.sizing.inventory import GpuKind, kind_from_card
from vlm_operator.sizing.latency.step import Layout, decoder_model
from vlm_operator.sizing.shape.quantisation import read_quantisation
from vlm_operator.sizing.shape.text.read import read_text
from vlm_operator.sizing.shape.types import Quantisation, ShapeRefusal, TextShape
from vlm_operator.sizing.traffic import (
    ClosedLoop,
    KVBlocks,
    Lengths,
    RequestKind,
    RequestMix,
    ServerLimits,
    TrafficResult,
    TrafficRun,
    simulate,
)

DATA = Path(__file__).parent / "data"
GPUS = {
    "h100_sxm": "h100-80gb-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
    "a100_sxm": "a100-80gb-sxm",
    "l40s": "l40s",
}
FP8: Mapping[str, Any] = {"quant_method": "fp8"}
NVFP4: Mapping[str, Any] = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "group_size": 16,
    "exclude_modules": ["lm_head"],
}
FORMATS: Mapping[str, Mapping[str, Any] | None] = {
    "": None,
    "bf16": None,
    "bfloat16": None,
    "fp8": FP8,
    "fp4": NVFP4,
    "nvfp4": NVFP4,
}
FP8_CACHE = ("h200_sxm", "b200_sxm", "b300_sxm", "gb200")
REQUESTS_PER_CLIENT = 10
BLOCK_TOKENS = 16
PUBLISHED_TOKENS = 8192
ROOM_FOR_PROMPTS = 1.5
"""Inferred: the form is that of AIConfigurator's own generator (``max_batch_size + isl + 1500``); with half a prompt of
room instead of 1,500 tokens the rows of short and of long prompts agree."""
SERIAL_RELEASE = "0.12.0"
SERIAL_HOST = 0.00092
"""Seconds that each step of a release without asynchronous scheduling waits for the host more than later ones do;
fitted to these rows, of no use to the product, whose engine overlaps both."""
UTILISATION = 0.9
"""Default share of the GPU at the time of the runs."""
OTHER_BYTES = 4e9
"""Activations, graphs and what lies outside the allocator, on top of the weights: the memory model's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row of the table; times in seconds."""

    model: str
    system: str
    format: str
    input_tokens: int
    output_tokens: int
    clients: int
    ranks: int
    ttft: float
    tpot: float
    note: str

    @property
    def name(self) -> str:
        """The row in short."""
        parts = (self.model.split("/")[-1], self.system, self.format or "bf16", f"tp{self.ranks}")
        return " ".join(parts) + f" {self.input_tokens}/{self.output_tokens} b{self.clients}"


def read_runs(path: Path | None = None) -> tuple[Run, ...]:
    """Return the rows of a file, or of ``data/``."""
    source = path or DATA / "silicon_dense.csv.gz"
    text = gzip.decompress(source.read_bytes()).decode() if source.suffix == ".gz" else source.read_text()
    return tuple(
        Run(
            model=row["model"],
            system=row["system"],
            format=row["prec"],
            input_tokens=int(float(row["isl"])),
            output_tokens=int(float(row["osl"])),
            clients=int(float(row["b"])),
            ranks=int(float(row["tp"])),
            ttft=_milliseconds(row["ttft_m"]),
            tpot=_milliseconds(row["tpot_m"]),
            note=row["note"],
        )
        for row in csv.DictReader(io.StringIO(text))
    )


def _milliseconds(text: str) -> float:
    """Return seconds; nan where nothing was measured."""
    try:
        return float(text) / 1000
    except ValueError:
        return nan


def why_not_scored(run: Run) -> str:
    """Return why a row does not count, empty where it does."""
    if run.note == "0.12.0" and run.format == "fp8":
        return "behaves like disaggregated prefill and decode, which is not modelled"
    if not (run.ttft > 0 and run.tpot > 0):
        return "it states no TTFT or no TPOT"
    if run.system not in GPUS or run.format not in FORMATS:
        return f"{run.system} with {run.format or 'bf16'} is not modelled"
    if run.model not in text_models():
        return "the model's shape is not known"
    return ""


@cache
def text_models() -> Mapping[str, Mapping[str, Any]]:
    """The shapes of the models in the table, by id."""
    return {model["id"]: model for model in json.loads((DATA / "silicon_models.json").read_text())["models"]}


@cache
def read_model(model: str, number_format: str) -> tuple[TextShape, Quantisation | None]:
    """Return the shape of a model in a number format."""
    sizes = {key: value for key, value in text_models()[model].items() if key not in {"id", "note"}}
    kind = "qwen3" if "Qwen3" in model else "llama"
    config = {"model_type": kind, "tie_word_embeddings": False, "max_position_embeddings": 131072, **sizes}
    stored = FORMATS[number_format]
    quantisation = read_quantisation({"quantization_config": stored}) if stored else None
    assert not isinstance(quantisation, ShapeRefusal)
    return read_text(config, 2, quantisation), quantisation


@cache
def gpu_of(system: str) -> GpuKind:
    """Return the GPU behind a system's name."""
    return kind_from_card(find_gpu(GPUS[system]))


def kv_dtype(run: Run) -> str:
    """Return the KV cache's type under which the rows are consistent with the GPU's memory."""
    return "fp8" if run.system in FP8_CACHE and run.note != SERIAL_RELEASE else "auto"


def simulate_run(
    run: Run, calibration: LatencyCalibration, serial_host: float = SERIAL_HOST, seed: int = 1
) -> TrafficResult:
    """Return what the simulation finds for a row."""
    shape, quantisation = read_model(run.model, run.format)
    layout = Layout(gpu=gpu_of(run.system), ranks=run.ranks, kv_dtype=kv_dtype(run))
    costs = decoder_model(shape, quantisation, layout, calibration)
    if run.note == SERIAL_RELEASE:
        costs = replace(costs, fixed=costs.fixed + serial_host)
    fixed = run.note == SERIAL_RELEASE
    kind = RequestKind(weight=1, text=_lengths(run.input_tokens, fixed), output=_lengths(run.output_tokens, fixed))
    limits = ServerLimits(
        max_num_seqs=1024,
        max_num_batched_tokens=batched_tokens(run),
        kv=KVBlocks(total=kv_tokens(run) // BLOCK_TOKENS),
        prefix_caching=False,
    )
    loop = ClosedLoop(clients=run.clients, requests=REQUESTS_PER_CLIENT * run.clients)
    return simulate(TrafficRun(mix=RequestMix(kinds=(kind,)), arrivals=loop, limits=limits), costs, Random(seed))  # noqa: S311 - traffic, not secrets


def kv_tokens(run: Run) -> int:
    """Return the tokens that the KV cache of one rank holds."""
    shape, _ = read_model(run.model, run.format)
    element = 1 if kv_dtype(run) == "fp8" else 2
    weights = sum(weight.measure(run.ranks, 2)[1] for weight in shape.weights)
    room = gpu_of(run.system).engine_memory_bytes * UTILISATION - weights - OTHER_BYTES
    token = shape.layers * max(1, shape.kv_heads // run.ranks) * 2 * shape.head_dim * element
    return max(0, int(room / token))


def batched_tokens(run: Run) -> int:
    """Return the tokens of a step with which a row was served."""
    if run.note == SERIAL_RELEASE:
        return run.clients + int(ROOM_FOR_PROMPTS * run.input_tokens)
    return PUBLISHED_TOKENS


def _lengths(tokens: int, fixed: bool) -> Lengths:  # noqa: FBT001
    return Lengths.fixed(tokens) if fixed else Lengths.between(0.8 * tokens, tokens)


def scored(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the rows that count."""
    return tuple(run for run in runs if not why_not_scored(run))
