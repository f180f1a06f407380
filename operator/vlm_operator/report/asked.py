"""What a spec declares, in the words of a person: the page's "What was asked"."""

from collections.abc import Sequence
from typing import Final

from vlm_operator.report.figures import count, megapixels, metric_words, money, percent, seconds
from vlm_operator.sizing.workload import Constraints, ImageSize, Workload

_MOST_SIZES: Final = 12


def asked(workload: Workload, constraints: Constraints) -> list[tuple[str, str]]:
    """Return (name, words) of everything that is declared; what is left out is named only where that decides much."""
    targets = [f"{metric_words(t)} ≤ {seconds(t.seconds)}" for t in constraints.latency_targets]
    rows = [
        ("Images", _sizes(workload.image_sizes)),
        ("Requests", _requests(workload)),
        ("Prompt text", f"{workload.prompt_tokens_p50:,} tokens typical, {workload.prompt_tokens_max:,} long"),
        ("Answer", f"{workload.output_tokens_p50:,} tokens typical, {workload.output_tokens_max:,} most"),
        ("Repeated", _repeated(workload)),
        ("Traffic", _traffic(workload)),
        ("Latency", " · ".join(targets) or "no target"),
        ("Quality", _quality(constraints)),
        ("Replicas", _replicas(constraints)),
        ("Limits", _limits(constraints)),
    ]
    return [(name, words) for name, words in rows if words]


def _sizes(sizes: Sequence[ImageSize]) -> str:
    total = sum(size.weight for size in sizes)
    ordered = sorted(sizes, key=lambda size: -size.weight)
    words = [f"{percent(size.weight / total)} {size.width}×{size.height}" for size in ordered[:_MOST_SIZES]]
    if len(ordered) > _MOST_SIZES:
        words.append(f"and {count(len(ordered) - _MOST_SIZES, 'other size')}")
    return " · ".join(words)


def _requests(workload: Workload) -> str:
    counts = sorted(workload.images_per_request, key=lambda entry: entry.count)
    total = sum(entry.weight for entry in counts)
    return " · ".join(f"{percent(entry.weight / total)} with {count(entry.count, 'image')}" for entry in counts)


def _repeated(workload: Workload) -> str:
    images = f"{workload.repeat_percent} % of the images" if workload.repeat_percent else ""
    prefix = f"the first {workload.shared_prefix_tokens:,} prompt tokens" if workload.shared_prefix_tokens else ""
    return " · ".join(words for words in (images, prefix) if words)


def _traffic(workload: Workload) -> str:
    if workload.requests_per_minute is None:
        return f"{count(workload.concurrent_requests or 1, 'request')} at once"
    burst = f", peaks of {workload.burst_percent} %" if workload.burst_percent > 100 else ""
    return f"{count(workload.requests_per_minute, 'request')} a minute{burst}"


def _quality(constraints: Constraints) -> str:
    pixels, tokens = constraints.min_pixels_per_image, constraints.min_image_tokens
    words = [f"at least {pixels:,} pixels of an image ({megapixels(pixels)})"] if pixels else []
    words += [f"at least {tokens:,} tokens of an image"] if tokens else []
    words += [f"weights in {', '.join(constraints.quantisations)}"] if constraints.quantisations else []
    return " · ".join(words) or "images as the model's own settings take them"


def _replicas(constraints: Constraints) -> str:
    least, most, spare = constraints.min_replicas, constraints.max_replicas, constraints.spare_replicas
    words = [f"{least} to {most}" if most is not None else f"at least {least}"] if most or least > 1 else []
    words += [f"{spare} of them spare"] if spare else []
    return " · ".join(words)


def _limits(constraints: Constraints) -> str:
    gpus, cents = constraints.max_gpus_per_replica, constraints.max_hourly_cost_cents
    words = [f"at most {count(gpus, 'GPU')} a replica"] if gpus is not None else []
    words += [f"at most {money(cents)}"] if cents is not None else []
    return " · ".join(words)
