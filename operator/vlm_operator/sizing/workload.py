"""What is asked, in engine words: distributions of images and text, traffic, objectives.

``planning.py`` translates the user's spec into these types; everything else in ``sizing`` reads only them.
"""

from dataclasses import dataclass
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
    """What arrives: images, text in tokens, and either a request rate or a number of concurrent requests."""

    image_sizes: tuple[ImageSize, ...]
    images_per_request: tuple[ImageCount, ...]
    prompt_tokens_p50: int
    prompt_tokens_max: int
    output_tokens_p50: int
    output_tokens_max: int
    requests_per_minute: int | None = None
    burst_percent: int = 100
    concurrent_requests: int | None = None

    @property
    def max_images_per_request(self) -> int:
        """The most images that one request carries."""
        return max(entry.count for entry in self.images_per_request)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """A percentile of a latency that must stay at or below a number of seconds."""

    metric: LatencyMetric
    percentile: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What the user allows: quality floor, formats, GPUs, money, replicas, latency targets.

    ``quantisations`` are the formats that the weights may have; empty means as published. ``kv_cache_dtypes`` come in
    the order of preference: a later one is taken only where it is cheaper. ``tensor_parallel_size`` None leaves the
    size to the search.
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
