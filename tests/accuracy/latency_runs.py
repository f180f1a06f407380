"""Published closed-loop runs of language models as the simulation takes them: shape, layout, limits, lengths.

What the rows are (the table states none of it): ``b`` clients each keep one request in flight, ten requests a client
in all; lengths lie between 0.8 and 1 of ``isl`` and ``osl``, but are fixed in the rows that name a release. Settings of
the engine are those under which the rows are consistent: 8,192 batched tokens (published), one prompt and a half beside
the clients' tokens where a release is named (inferred); KV cache in BF16 on H100, in FP8 on H200 and Blackwell
(inferred). Room for the KV cache is what the memory model leaves.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.accuracy.benchmarks import DATA, read_text
from tests.accuracy.decoders import find_decoder, format_of_run, load_shapes
from tests.accuracy.fields import UnclearRowError, UnreadableFileError, count, positive, words
from tests.accuracy.gpus import served_gpu
from tests.accuracy.kv_room import kv_room
from tests.accuracy.memory_logs import LogConditions
from tests.accuracy.models import PublishedModel
from tests.accuracy.releases import Version, parse_version, release_of
from vlm_operator.catalogue.types import LatencyCalibration
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.latency.step import Layout, decoder_model
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

COLUMNS = ("model", "system", "isl", "osl", "b", "tp")
"""Columns that a table of runs needs, beside one of ``TIMES``; ``prec`` and ``note`` may be missing."""
TIMES = ("ttft_m", "tpot_m")
FP8_CACHE = ("h200-sxm", "b200-sxm", "b300-sxm", "gb200", "gb300")
DISAGGREGATED = ("0.12.0", "fp8")
"""Note and format of rows that behave like disaggregated prefill and decode."""
REQUESTS_PER_CLIENT = 10
MOST_CLIENTS = 4096
"""More clients than any published run; beyond, a row would be simulated for minutes."""
PUBLISHED_TOKENS = 8192
SEQUENCES = 1024
"""The engine's default on GPUs of 70 GiB and more."""
ROOM_FOR_PROMPTS = 1.5
"""Inferred: the form is that of AIConfigurator's own generator (``max_batch_size + isl + 1500``); with half a prompt of
room instead of 1,500 tokens the rows of short and of long prompts agree."""
FIRST_ASYNCHRONOUS: Version = (0, 14)
"""The first release whose scheduler works beside the GPU by default."""
UNSTATED: Version = (0, 19)
"""Release of rows that name none: the last before the defaults of memory changed, as these rows are older."""
SERIAL_HOST = 0.00092
"""Seconds that each step of a release without asynchronous scheduling waits for the host more than later ones do;
fitted to these rows, of no use to the product, whose engine overlaps both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row of the table; times in seconds, None where nothing was measured."""

    line: int
    model: str
    system: str
    gpu: GpuKind
    decoder: PublishedModel
    format: str
    input_tokens: int
    output_tokens: int
    clients: int
    ranks: int
    ttft: float | None
    tpot: float | None
    release: Version | None
    kv: KVBlocks

    @property
    def name(self) -> str:
        """The row in short."""
        parts = (self.model.split("/")[-1], self.system, self.format or "bf16", f"tp{self.ranks}")
        return " ".join(parts) + f" {self.input_tokens}/{self.output_tokens} b{self.clients}"

    @property
    def is_serial(self) -> bool:
        """Whether the release schedules one step after the other."""
        return self.release is not None and self.release < FIRST_ASYNCHRONOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRun:
    """A row that is not compared, and why."""

    name: str
    model: str
    system: str
    ttft: float | None
    tpot: float | None
    why: str


def read_runs(path: Path | None = None, models: Path | None = None) -> tuple[Run | UnreadRun, ...]:
    """Return the rows of a file, or of ``data/``; ``models`` has the shapes of other models.

    Raises:
        UnreadableFileError: A file is missing or not of the format.
    """
    source = path or DATA / "silicon_dense.csv.gz"
    try:
        reader = csv.DictReader(io.StringIO(read_text(source), newline=""))
        columns = reader.fieldnames or ()
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UnreadableFileError(f"{source}: no table of comma-separated values: {error}") from error
    missing = [name for name in COLUMNS if name not in columns]
    if not any(name in columns for name in TIMES):
        missing.append(" or ".join(TIMES))
    if missing:
        raise UnreadableFileError(f"{source}: the first row lacks the column {missing[0]}")
    shapes = {**load_shapes(), **(load_shapes(models) if models else {})}
    return tuple(_read(line, row, shapes) for line, row in rows)


def _read(line: int, row: Mapping[str, str | None], shapes: Mapping[str, Mapping[str, object]]) -> Run | UnreadRun:
    try:
        run = _run(line, row, shapes)
    except UnclearRowError as unclear:
        name = " ".join(words(row, key) for key in ("model", "system", "prec") if words(row, key))
        times = {key: _seconds_or_none(row, f"{key}_m") for key in ("ttft", "tpot")}
        return UnreadRun(
            name=f"line {line}: {name}",
            model=words(row, "model"),
            system=words(row, "system"),
            why=str(unclear),
            **times,
        )
    if (words(row, "note"), run.format) == DISAGGREGATED:
        why = "behaves like disaggregated prefill and decode, which is not modelled"
        return UnreadRun(name=run.name, model=run.model, system=run.system, ttft=run.ttft, tpot=run.tpot, why=why)
    return run


def _run(line: int, row: Mapping[str, str | None], shapes: Mapping[str, Mapping[str, object]]) -> Run:
    needed = {name: words(row, name) for name in COLUMNS}
    lacking = [name for name, value in needed.items() if not value]
    if lacking:
        raise UnclearRowError(f"it does not state {' and '.join(lacking)}")
    number_format = format_of_run(words(row, "prec"), needed["model"])
    gpu = served_gpu(needed["system"])
    if gpu is None:
        raise UnclearRowError(f"the catalogue has no GPU named {needed['system']}")
    decoder = find_decoder(needed["model"], number_format, shapes)
    if decoder is None:
        raise UnclearRowError(f"the shape of {needed['model']} in {number_format or 'bf16'} is not known")
    ttft, tpot = _seconds(row, "ttft_m"), _seconds(row, "tpot_m")
    if ttft is None and tpot is None:
        raise UnclearRowError("it states no TTFT and no TPOT")
    lengths = {name: max(1, round(positive(row, name) or 1)) for name in ("isl", "osl")}
    run = Run(
        line=line,
        model=needed["model"],
        system=needed["system"],
        gpu=gpu,
        decoder=decoder,
        format=number_format,
        input_tokens=lengths["isl"],
        output_tokens=lengths["osl"],
        clients=count(row, "b") or 1,
        ranks=count(row, "tp") or 1,
        ttft=ttft,
        tpot=tpot,
        release=_release(words(row, "note")),
        kv=KVBlocks(total=0),
    )
    run = replace(run, kv=_kv_blocks(run))
    _check(run)
    return run


def _check(run: Run) -> None:
    """Refuse what no engine would serve, or what nobody would wait for."""
    heads, context = run.decoder.shape.text.heads, run.decoder.context
    if heads % run.ranks:
        raise UnclearRowError(f"tp {run.ranks} does not divide the model's {heads} heads")
    if run.input_tokens + run.output_tokens > context:
        raise UnclearRowError(f"isl and osl exceed the model's context of {context} tokens")
    if run.clients > MOST_CLIENTS:
        raise UnclearRowError(f"more than {MOST_CLIENTS} clients are not simulated")
    if run.kv.total * run.kv.block_tokens < run.input_tokens + run.output_tokens:
        raise UnclearRowError("its weights leave no room for the KV cache of one request")


def _release(note: str) -> Version | None:
    """Return the release that a note consists of; a note may be anything else."""
    return parse_version(note) if note[:1].isdigit() else None


def _seconds(row: Mapping[str, str | None], name: str) -> float | None:
    found = positive(row, name)
    return None if found is None else found / 1000


def _seconds_or_none(row: Mapping[str, str | None], name: str) -> float | None:
    try:
        return _seconds(row, name)
    except UnclearRowError:
        return None


def kv_dtype(run: Run) -> str:
    """Return the KV cache's type under which the rows are consistent with the GPU's memory."""
    return "fp8" if run.gpu.id in FP8_CACHE and run.release is None else "auto"


def simulate_run(
    run: Run, calibration: LatencyCalibration, serial_host: float = SERIAL_HOST, seed: int = 1
) -> TrafficResult:
    """Return what the simulation finds for a row."""
    shape = run.decoder.shape
    layout = Layout(gpu=run.gpu, ranks=run.ranks, kv_dtype=kv_dtype(run))
    costs = decoder_model(shape.text, shape.quantisation, layout, calibration)
    if run.is_serial:
        costs = replace(costs, fixed=costs.fixed + serial_host)
    fixed = run.release is not None
    kind = RequestKind(weight=1, text=_lengths(run.input_tokens, fixed), output=_lengths(run.output_tokens, fixed))
    limits = ServerLimits(
        max_num_seqs=SEQUENCES,
        max_num_batched_tokens=batched_tokens(run),
        kv=run.kv,
        prefix_caching=False,
    )
    loop = ClosedLoop(clients=run.clients, requests=REQUESTS_PER_CLIENT * run.clients)
    return simulate(TrafficRun(mix=RequestMix(kinds=(kind,)), arrivals=loop, limits=limits), costs, Random(seed))  # noqa: S311 - traffic, not secrets


def _kv_blocks(run: Run) -> KVBlocks:
    """Return the room for the KV cache on each rank."""
    conditions = LogConditions(
        gpu=run.gpu,
        release=release_of(run.release or UNSTATED),
        tensor_parallel_size=run.ranks,
        utilization=release_of(run.release or UNSTATED).utilization,
        max_model_len=run.input_tokens + run.output_tokens,
        max_num_seqs=SEQUENCES,
        max_num_batched_tokens=batched_tokens(run),
        eager=False,
        image_limit=0,
        video_limit=0,
        largest_graph=None,
        kv_dtype=kv_dtype(run),
        encoder_mode="weights",
        skips_encoder=True,
        max_pixels=None,
        profiled=None,
    )
    return kv_room(conditions, run.decoder)


def batched_tokens(run: Run) -> int:
    """Return the tokens of a step with which a row was served."""
    if run.release is not None:
        return run.clients + int(ROOM_FOR_PROMPTS * run.input_tokens)
    return PUBLISHED_TOKENS


def _lengths(tokens: int, fixed: bool) -> Lengths:  # noqa: FBT001
    return Lengths.fixed(tokens) if fixed else Lengths.between(0.8 * tokens, tokens)


def scored(runs: Sequence[Run | UnreadRun]) -> tuple[Run, ...]:
    """Return the rows that count."""
    return tuple(run for run in runs if isinstance(run, Run))
