"""What is asked, in engine words: distributions of images and text, traffic, objectives.

``planning.py`` translates the user's spec into these types; everything else in ``sizing`` reads only them.
"""

from dataclasses import dataclass, fields
from typing import Literal

LatencyMetric = Literal["ttft", "tpot", "request_latency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSize:
    """Images of one size in pixels and their share of all images (weights need not sum to 1)."""

    width: int
    height: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCount:
    """Requests with this many images and their share of all requests."""

    count: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What arrives: images, text in tokens, and either a request rate or a number of concurrent requests.

    ``repeat_percent`` of the images were sent shortly before; ``shared_prefix_tokens`` of every prompt are the same.
    """

    image_sizes: tuple[ImageSize, ...]
    images_per_request: tuple[ImageCount, ...]
    prompt_tokens_p50: int
    prompt_tokens_max: int
    output_tokens_p50: int
    output_tokens_max: int
    requests_per_minute: int | None = None
    burst_percent: int = 100
    concurrent_requests: int | None = None
    repeat_percent: int = 0
    shared_prefix_tokens: int = 0

    @property
    def max_images_per_request(self) -> int:
        """The most images that one request carries."""
        return max(entry.count for entry in self.images_per_request)

    @property
    def mean_images_per_request(self) -> float:
        """The images that a request carries on average."""
        counts = self.images_per_request
        return sum(entry.count * entry.weight for entry in counts) / sum(entry.weight for entry in counts)

    @property
    def mean_prompt_tokens(self) -> int:
        """The mean length of the text; half of the requests are taken for typical, the others evenly up to the most."""
        return round((3 * self.prompt_tokens_p50 + self.prompt_tokens_max) / 4)

    @property
    def mean_output_tokens(self) -> int:
        """The mean length of an answer, reckoned in the same way."""
        return round((3 * self.output_tokens_p50 + self.output_tokens_max) / 4)

    @property
    def images_per_hour(self) -> float | None:
        """The mean number of images that arrive, over all replicas; None where the rate is not known."""
        if self.requests_per_minute is None:
            return None
        return self.requests_per_minute * 60 * self.mean_images_per_request


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """A percentile of a latency that must stay at or below a number of seconds."""

    metric: LatencyMetric
    percentile: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFlags:
    """Flags of the engine that the user sets: a plan takes these very values. None leaves a flag to the search.

    Attributes:
        utilization_percent: ``--gpu-memory-utilization``.
        passed: Arguments that change nothing a plan says; they are rendered as they are.
    """

    tensor_parallel_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    utilization_percent: int | None = None
    kv_cache_dtype: str | None = None
    mm_encoder_tp_mode: Literal["weights", "data"] | None = None
    passed: tuple[str, ...] = ()

    @property
    def obeyed(self) -> tuple[str, ...]:
        """The flags that a plan obeys, as they are written, such as ``--max-num-seqs 64``."""
        values = {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        percent = values.pop("utilization-percent")
        values["gpu-memory-utilization"] = None if percent is None else f"{percent / 100:.2f}"
        del values["passed"]
        return tuple(f"--{name} {value}" for name, value in values.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What the user allows: quality floor, formats, GPUs, money, replicas, latency targets.

    ``quantisations`` are the formats that the weights may have; empty means as published. ``kv_cache_dtypes`` come in
    the order of preference: a later one is taken only where it is cheaper. ``tensor_parallel_size`` None leaves the
    size to the search. ``spare_replicas`` may fail with every target kept.
    """

    latency_targets: tuple[LatencyTarget, ...] = ()
    min_pixels_per_image: int | None = None
    min_image_tokens: int | None = None
    quantisations: tuple[str, ...] = ()
    kv_cache_dtypes: tuple[str, ...] = ("auto",)
    max_gpus_per_replica: int | None = None
    tensor_parallel_size: int | None = None
    max_hourly_cost_cents: int | None = None
    min_replicas: int = 1
    max_replicas: int | None = None
    spare_replicas: int = 0
    asked: AskedFlags = AskedFlags()

    @property
    def only_size(self) -> int | None:
        """The one tensor parallel size to consider, None where the search may choose."""
        return self.tensor_parallel_size or self.asked.tensor_parallel_size

    @property
    def least_replicas(self) -> int:
        """The fewest replicas: at least one beside the spare ones."""
        return max(self.min_replicas, self.spare_replicas + 1)
