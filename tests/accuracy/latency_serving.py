"""Published serving runs of vision-language models beside the simulation of one of their replicas.

``serving``: a figure is scored where its row states the load under which it was measured; a throughput whose load is
not stated is shown beside that of a saturated server.

``serving, load inferred``: runs of GuideLLM publish a "max throughput" and no load. With small images their throughput
times the latency of a single request is 4.6 to 5.5, on A6000 as on A100, from 3B to 72B, in BF16 as in 4 bits, once the
GPUs of a throughput are shared out among servers as large as that of the single request. A server short of CPU would
show one rate on all of them, one short of GPU would differ: so a few requests were in flight, and the simulation agrees
with all of these rows at six on each server. This table is of that load.

Their release, 0.7.2, also prepared images in the engine's own loop, so nothing ran beside it on the GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.accuracy.benchmarks import PublishedRow, load_published
from tests.accuracy.fields import UnclearRowError, words
from tests.accuracy.releases import FIRST_SCORED
from tests.accuracy.serving_figures import Figure, read_figures
from tests.accuracy.serving_load import Load, read_load
from tests.accuracy.serving_row import ServingRow, flat_fields, read_serving
from tests.accuracy.table import AccuracyRow
from vlm_operator.catalogue.load import latency_calibration
from vlm_operator.sizing.latency import Layout, StepModel, step_model, with_interval
from vlm_operator.sizing.traffic import RequestMix, TrafficResult, TrafficRun, simulate

SECTION = "serving"
LOAD_INFERRED = "serving, load inferred"
UNCOMPILED_KERNELS = 6.9
"""Fixed time of a layer before models were compiled (release 0.8), when every norm, activation and rotary embedding was
a kernel: in that of the GPU's own decode attention, which goes with its clock; 6.8 by the rows of A100 (137 us), 7.1 by
those of A6000 (95 us)."""
SLOW_PROCESSOR = 0.13
"""Seconds per megapixel of that time's image processors: what 3.8 megapixels took more than 0.2, less encoder and
prompt; today's figure is in the catalogue."""
SATURATED_TURNS = 4
"""Requests for each place of a saturated server."""
IN_FLIGHT = 6
"""Inferred: the requests that each server of a GuideLLM run had in flight."""
NO_LOAD = "its load is not stated"
MOST_LOAD = "the load at which the throughput was reached is not stated; predicted is that of a saturated server"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyEngine:
    """The costs of an engine before V1: images are prepared in its loop, while the GPU waits."""

    steps: StepModel
    image_seconds: float

    def batch(self, tokens: int, sampled: int) -> float:
        """Return ``StepModel.batch``."""
        return self.steps.batch(tokens, sampled)

    def prefill_attention(self, tokens: int, context: int) -> float:
        """Return ``StepModel.prefill_attention``."""
        return self.steps.prefill_attention(tokens, context)

    def prefill_overhead(self) -> float:
        """Return ``StepModel.prefill_overhead``."""
        return self.steps.prefill_overhead()

    def decode_attention(self, sequences: float, context: float) -> float:
        """Return ``StepModel.decode_attention``."""
        return self.steps.decode_attention(sequences, context)

    def encode(self, patches: int, pairs: int, images: int) -> float:
        """Return ``StepModel.encode`` and the time in which the images were prepared."""
        return self.steps.encode(patches, pairs, images) + images * self.image_seconds

    def preprocess(self, megapixels: float, patches: int) -> float:  # noqa: ARG002 - the protocol's
        """Return nothing: see ``encode``."""
        return 0.0

    def request(self) -> float:
        """Return ``StepModel.request``."""
        return self.steps.request()


def serving_rows(benchmarks: Path | None = None) -> Sequence[AccuracyRow]:
    """Return the latencies and the throughput of each published serving run.

    Raises:
        UnreadableFileError: The file is missing or not of the format.
    """
    return tuple(made for row in load_published("serving", benchmarks) for made in compare_serving(row))


def compare_serving(row: PublishedRow) -> tuple[AccuracyRow, ...]:
    """Return one row for each figure; one unscored row that says why where there is none to compare."""
    try:
        figures, foreign = read_figures(row), _foreign(row)
    except UnclearRowError as unclear:
        return (_unscored(row, None, str(unclear)),)
    if not figures:
        return (_unscored(row, None, foreign or "it states no latency and no throughput that is compared"),)
    try:
        served, load = read_serving(row), read_load(flat_fields(row))
    except UnclearRowError as unclear:
        return tuple(_unscored(row, figure, foreign or str(unclear)) for figure in figures)
    made = _Comparison(row=row, served=served, load=load, foreign=foreign)
    shown = tuple(made.compare(figure) for figure in figures)
    inferred = load is None and "guidellm" in words(row, "suite").lower()
    most = [figure for figure in figures if figure.under == "the most load"]
    return (*shown, *(made.infer(figure) for figure in most if inferred))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """A row that can be simulated; ``foreign`` says why it is not scored all the same."""

    row: PublishedRow
    served: ServingRow
    load: Load | None
    foreign: str

    def compare(self, figure: Figure) -> AccuracyRow:
        """Return the figure beside the prediction."""
        load, why = self._load(figure)
        if load is None:
            return _unscored(self.row, figure, self.foreign or why)
        try:
            result = _simulate(self.served, load)
        except UnclearRowError as unclear:
            return _unscored(self.row, figure, self.foreign or str(unclear))
        if not result.sustainable and figure.quantity is not None:
            why = "more than its replicas keep up with, by the prediction: its latency grows as long as requests come"
        return _beside(self.row, figure, figure.of(result, self.served.replicas), self.served, self.foreign or why)

    def infer(self, figure: Figure) -> AccuracyRow:
        """Return a throughput beside the prediction for the load that such runs seem to have had."""
        result = _simulate(self.served, Load(clients=IN_FLIGHT * self.served.replicas))
        predicted = figure.of(result, self.served.replicas)
        return replace(_beside(self.row, figure, predicted, self.served, self.foreign), section=LOAD_INFERRED)

    def _load(self, figure: Figure) -> tuple[Load | None, str]:
        """Return the load under which a figure is predicted, and why it is not scored; empty where it is."""
        if figure.under == "one request at a time":
            return Load(clients=self.served.replicas), ""
        if self.load is not None:
            if self.load.rate is None or self.load.requests is not None or figure.quantity is None:
                return self._with_requests(self.load), ""
            return (self.load, "") if self.load.rate != float("inf") else (None, "how many prompts is not stated")
        if figure.quantity is not None:
            return None, NO_LOAD
        return self._saturated(), MOST_LOAD

    def _with_requests(self, load: Load) -> Load:
        """Return a load of prompts that are sent at once with as many as saturate the server, where none are stated."""
        at_once = load.rate == float("inf") and load.requests is None and load.clients is None
        return self._saturated() if at_once else load

    def _saturated(self) -> Load:
        places = self.served.limits.max_num_seqs * self.served.replicas
        return Load(clients=places, requests=SATURATED_TURNS * places)


def _simulate(served: ServingRow, load: Load) -> TrafficResult:
    arrivals, seconds = load.arrivals(served.replicas)
    mix = RequestMix(kinds=(served.kind,))
    run = TrafficRun(mix=mix, arrivals=arrivals, limits=served.limits, seconds=seconds)
    return simulate(run, _costs(served), Random(1))  # noqa: S311 - traffic, not secrets


def _costs(served: ServingRow) -> StepModel | EarlyEngine:
    costs = _steps(served)
    if served.release >= FIRST_SCORED:
        return costs
    kernel = costs.speed.kernels.decode_attention_microseconds["bf16"] / 1e6
    more = UNCOMPILED_KERNELS * kernel - costs.speed.layer_fixed("bf16", "auto")
    costs = replace(costs, fixed=costs.fixed + costs.work.layers * max(0.0, more))
    patches = served.kind.images[0].patches if served.kind.images else 0
    prepared = costs.preprocess(served.megapixels, patches)
    return EarlyEngine(steps=costs, image_seconds=max(prepared, SLOW_PROCESSOR * served.megapixels))


def _steps(served: ServingRow) -> StepModel:
    layout = Layout(gpu=served.gpu, ranks=served.ranks)
    return step_model(served.model.shape, layout, latency_calibration())


def _foreign(row: PublishedRow) -> str:
    """Return why a row is not of the product's engine; empty where it is."""
    fields = flat_fields(row)
    engine = words(fields, "engine").lower()
    if "fork" in engine:
        return "a fork of the engine with a scheduler of its own"
    if engine and "vllm" not in engine and not words(fields, "vllm"):
        return f"another engine ({words(fields, 'engine')})"
    said = words(fields, "engine", "vllm", "suite", "source", "flags").lower()
    return "" if "vllm" in said or words(fields, "vllm") else "the engine is not stated"


def _beside(row: PublishedRow, figure: Figure, predicted: float, served: ServingRow, why_not: str) -> AccuracyRow:
    """Return a figure beside its prediction. A throughput is requests over their time, so its interval is theirs."""
    evidence = _steps(served).speed.evidence
    found = with_interval(predicted, figure.quantity or "total", evidence, latency_calibration())
    low, high = found.low, found.high
    if figure.quantity is None:
        low, high = predicted * predicted / found.high, predicted * predicted / found.low
    shown = _unscored(row, figure, why_not or NO_LOAD)
    return replace(shown, predicted=predicted, low=low, high=high, scored=not why_not, why_not=why_not)


def _unscored(row: PublishedRow, figure: Figure | None, why_not: str) -> AccuracyRow:
    return AccuracyRow(
        id=row["id"],
        section=SECTION,
        quantity="end to end" if figure is None else figure.name,
        unit="s" if figure is None else figure.unit,
        source=row["source"],
        published=None if figure is None else figure.value,
        scored=False,
        why_not=why_not,
        better="higher" if figure is not None and figure.quantity is None else "lower",
        labels={"model": words(row, "model") or "not stated", "gpu": words(row, "gpu") or "not stated"},
    )
