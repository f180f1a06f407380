"""Frozen types of the catalogue files. Every group of figures carries its source and its certainty."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

ModelCertainty = Literal["real-file", "conversion-script", "class-default", "model-card", "memory"]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Provenance(_Entry):
    """Where figures come from and how sure they are."""

    source: Annotated[tuple[str, ...], Field(min_length=1)]
    certainty: str


class StoredTensor(NamedTuple):
    """One tensor of a checkpoint as the header of its file lists it; ``dtype`` is the format's name, such as BF16."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


class ModelCard(_Entry):
    """One checkpoint: the exact config.json and processor values, and where they come from.

    ``quantised_as`` are the ids of published checkpoints that hold the same model in a smaller format. A card that was
    made of a model's own files also has their commit as ``revision``, and the checkpoint's ``tensors``.
    """

    id: str
    architecture: str
    config: dict[str, Any]
    config_provenance: Provenance
    processor: dict[str, Any]
    processor_provenance: Provenance
    parameters: int | None
    parameters_provenance: Provenance | None
    dtype: str
    served: bool
    last_engine_version: str | None = None
    quantised_as: tuple[str, ...] = ()
    remembered_fields: tuple[str, ...] = ()
    revision: str = ""
    tensors: tuple[StoredTensor, ...] = ()


EU_MEMBERS = frozenset(
    {
        *("AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU"),
        *("IE", "IT", "LT", "LU", "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK"),
    }
)
"""ISO 3166 codes of the member states of the European Union."""
_ALIASES = {"UK": "GB", "EL": "GR"}
"""Codes in common use that ISO 3166 only reserves."""


class Licence(_Entry):
    """The licence of the weights of every model whose id begins with one of ``prefixes``."""

    licence: str
    prefixes: Annotated[tuple[str, ...], Field(min_length=1)]
    excluded_jurisdictions: tuple[Annotated[str, Field(pattern="^[A-Z]{2}$")], ...]
    non_commercial: bool
    provenance: Provenance

    def excludes(self, jurisdiction: str) -> bool:
        """Whether the licence grants no rights in ``jurisdiction`` (ISO 3166, or EU).

        A member state is excluded with the European Union, and the Union with any of its members.
        """
        excluded = set(self.excluded_jurisdictions)
        jurisdiction = _ALIASES.get(jurisdiction, jurisdiction)
        if jurisdiction in EU_MEMBERS:
            return bool(excluded & {jurisdiction, "EU"})
        return jurisdiction in excluded or (jurisdiction == "EU" and bool(excluded & EU_MEMBERS))


class PartDefaults(_Entry):
    """Defaults of the configuration class of one section of config.json."""

    source: str
    values: dict[str, Any]


class SectionDefaults(_Entry):
    """The class of a section, always where it is ``fixed``, else where the section names none.

    A section that is missing is made of ``when_absent``; one that is ``optional`` may be missing for good.
    """

    model_type: str
    fixed: bool = False
    when_absent: dict[str, Any] = {}
    optional: bool = False


class WholeDefaults(_Entry):
    """Defaults of the configuration class of a whole config.json."""

    source: str
    values: dict[str, Any]
    sections: dict[str, SectionDefaults]


class ClassDefaults(_Entry):
    """Defaults of configuration classes by model_type."""

    parts: dict[str, PartDefaults]
    whole: dict[str, WholeDefaults]


class EngineFlag(_Entry):
    """One flag of ``vllm serve`` as its own parser has it.

    ``choices`` are refused by the parser, ``bounds`` (ge, gt, le, lt) when the engine configures itself; with
    ``accepts_none`` an empty value or None means unset.
    """

    names: Annotated[tuple[str, ...], Field(min_length=1)]
    dest: str
    kind: Literal[
        "switch", "int", "int with suffix", "int with suffix or auto", "float", "str", "json", "object", "json or str"
    ]
    negative_names: tuple[str, ...] = ()
    nargs: Literal["?", "+"] | None = None
    repeatable: bool = False
    accepts_none: bool = False
    choices: tuple[str | int, ...] = ()
    known_values: tuple[str, ...] = ()
    bounds: dict[Literal["ge", "gt", "le", "lt"], float] = {}
    default: Any = None


class EngineCard(_Entry):
    """One release of the engine and its flags."""

    version: str
    provenance: Provenance
    flags: tuple[EngineFlag, ...]

    def __hash__(self) -> int:
        """Return the hash of the version, so that what is made of a card can be kept."""
        return hash(self.version)


class FlagRule(_Entry):
    """What becomes of some flags that users set themselves: planned, passed on, or refused.

    ``flags`` are dests. ``instead`` is what to do about a refused one, ``unless`` the values that are accepted all the
    same because they change nothing.
    """

    verdict: Literal["planned", "passed", "refused"]
    why: str
    instead: str = ""
    unless: tuple[str | int | bool, ...] = ()
    flags: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _says_what_to_do(self) -> "FlagRule":
        if (self.verdict == "refused") != bool(self.instead) or (self.unless and self.verdict != "refused"):
            raise ValueError(f"{self.flags[0]}: a refused flag says what to do instead, and only it has unless")
        return self


class FlagRules(_Entry):
    """A rule for every flag of one release of the engine."""

    version: str
    rules: tuple[FlagRule, ...]


class Figure(_Entry):
    """A calibrated constant with its spread; ``low`` takes least memory or time, ``high`` most."""

    value: float
    low: float
    high: float
    unit: str
    meaning: str
    provenance: Provenance

    @model_validator(mode="after")
    def _in_order(self) -> "Figure":
        if not self.low <= self.value <= self.high:
            raise ValueError(f"low {self.low}, value {self.value} and high {self.high} are not in order")
        return self


class MemoryCalibration(_Entry):
    """What the engine takes beside weights and KV cache; ``calibration/memory.yaml`` says what each figure means."""

    allocator_slack: Figure
    sampler_copies: Figure
    residual_copies: Figure
    non_torch: Figure
    non_torch_parallel: Figure
    non_torch_fabric: Figure
    loader_residue: Figure
    graph_per_layer_and_size: Figure
    graph_experts: Figure
    context: Figure
    nccl: Figure
    nccl_fabric: Figure
    process_memory: Figure
    loader_memory: Figure
    shared_memory: Figure


RooflineShares = Annotated[dict[int, Annotated[float, Field(gt=0)]], Field(min_length=1)]
"""Matrix products of one number format by rows, as shares of the datasheet's roofline: the longer of reading the matrix
once and of multiplying at the dense rate, over the measured time. Lines between the rows given."""


class AttentionSpeed(_Entry):
    """Attention over prompts or images: its share of the BF16 rate over long ones, half of that at ``half_length``."""

    compute_share: Annotated[float, Field(gt=0)]
    half_length: Annotated[float, Field(ge=0)]


class LinkSpeed(_Entry):
    """An all-reduce: its fixed time and its bus bandwidth, the bytes that each GPU sends and receives per second."""

    microseconds: float
    gb_per_second: Annotated[float, Field(gt=0)]


class KernelSpeeds(_Entry):
    """Measured kernels of one GPU; ``capability`` is ten times the compute capability."""

    gpu: str
    capability: int
    link_gb_per_second_bidirectional: float | None
    gemm: dict[Literal["bf16", "fp8", "fp4"], RooflineShares]
    gemm_microseconds: dict[Literal["bf16", "fp8", "fp4"], float]
    prefill_attention: AttentionSpeed
    kv_bandwidth_share: dict[Literal["bf16", "fp8"], float]
    decode_attention_microseconds: dict[Literal["bf16", "fp8"], float]
    vision_attention: dict[int, AttentionSpeed]
    all_reduce: dict[int, LinkSpeed]
    provenance: Provenance


class Spread(_Entry):
    """Measured over predicted: the interval that holds nine rows of ten."""

    low: Annotated[float, Field(gt=0)]
    high: float


class EngineFigures(_Entry):
    """What differs between architectures in the engine's own steps; ``capability`` as in ``KernelSpeeds``.

    ``prefill_step`` is on one GPU, ``prefill_doubling`` is added each time the ranks double. ``sustained_share`` is
    what long work leaves of the rate that short measurements of products reach.
    """

    capability: int
    host_sequence: Figure
    prefill_step: Figure
    prefill_doubling: Figure
    all_reduce_share: Figure
    sustained_share: Figure


class LatencyFigures(_Entry):
    """What no kernel table gives; ``calibration/latency.yaml`` says what each figure means. Times are in seconds."""

    layer: Figure
    host_step: Figure
    front_end: Figure
    elementwise_share: Figure
    weight_only_share: Figure
    expert_share: Figure
    reading_share: dict[Literal["bf16", "fp8", "fp4"], Figure]
    multiplying_gain: dict[Literal["bf16", "fp8", "fp4"], Figure]
    kv_gain: Figure
    rank_skew: Figure
    preprocess_image: Figure
    preprocess_megapixel: Figure
    preprocess_kept_megapixel: Figure
    engines: Annotated[tuple[EngineFigures, ...], Field(min_length=1)]
    without_link: LinkSpeed
    seen_in_runs: tuple[str, ...]
    spread: dict[Literal["runs", "kernels", "datasheet"], dict[Literal["ttft", "tpot", "total"], Spread]]


class LatencyCalibration(LatencyFigures):
    """The figures together with the kernel tables of all measured GPUs."""

    kernels: Annotated[tuple[KernelSpeeds, ...], Field(min_length=1)]


class Price(_Entry):
    """The lowest on-demand price of one GPU-hour, in US dollars."""

    usd_per_gpu_hour: float
    instance: str
    by_share: bool
    provenance: Provenance


class Offer(_Entry):
    """The lowest on-demand price of a whole cloud instance with this many GPUs of one product."""

    instance: str
    cloud: str
    region: str
    gpus: Annotated[int, Field(ge=1)]
    usd_per_hour: Annotated[float, Field(gt=0)]
    cpu_cores: int | None
    memory_gib: float | None
    provenance: Provenance


class MigSupport(_Entry):
    """Into how many instances MIG cuts a GPU at most, and into how many slices its memory: 8 where that is 7.

    Source: NVIDIA Multi-Instance GPU User Guide, "Supported GPUs" and "Supported MIG Profiles".
    """

    max_instances: Annotated[int, Field(ge=1, le=7)]
    provenance: Provenance

    @property
    def memory_slices(self) -> int:
        """Equal parts of the memory, of which an instance holds some."""
        return 8 if self.max_instances == 7 else self.max_instances


class GpuCard(_Entry):
    """One GPU product with its datasheet and measured figures.

    ``price`` is the cheapest GPU-hour over all ``offers``; :meth:`price_for` asks for a number of GPUs. ``mig`` is None
    where the GPU cannot be cut into instances.
    """

    id: str
    display_name: str
    vendor: str
    architecture: str
    compute_capability: str | None
    marketing_memory_gb: float
    driver_memory_mib: int | None
    driver_memory_provenance: Provenance | None
    engine_memory_gib: float | None
    engine_memory_provenance: Provenance
    bandwidth_gb_per_second: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None = None
    fp8_tflops: float | None
    link_gb_per_second_bidirectional: float | None
    max_gpus_per_node: int | None
    spec_provenance: Provenance
    labels: tuple[str, ...]
    labels_certainty: str
    mig: MigSupport | None = None
    price: Price | None
    offers: tuple[Offer, ...] = ()

    def price_for(self, gpus: int) -> Price | None:
        """The price of one GPU-hour when this many GPUs are used on one node.

        An instance whose GPUs would all be used comes first; else the share of the cheapest larger instance.

        Args:
            gpus: How many GPUs of one node are used.

        Returns:
            The price, or None where no instance of at least this size has a known price.
        """
        large_enough = [offer for offer in self.offers if offer.gpus >= gpus]
        whole = [offer for offer in large_enough if offer.gpus == gpus]
        best = min(whole or large_enough, key=lambda o: (o.usd_per_hour / o.gpus, o.gpus), default=None)
        if best is None:
            return None
        return Price(
            usd_per_gpu_hour=round(best.usd_per_hour / best.gpus, 4),
            instance=best.instance,
            by_share=best.gpus > gpus,
            provenance=best.provenance,
        )
