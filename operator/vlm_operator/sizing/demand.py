"""The declared requests in tokens: exact distributions per image and per request.

In: a workload and a counting rule bound to the server settings. Out: ``Demand``, which every check of a candidate
reads. Called by ``search.py`` once per setting, since it depends on neither GPU nor parallelism.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vlm_operator.sizing.legality import LengthRefusal, derive_max_model_len
from vlm_operator.sizing.plan import ImageShare, TokenFigures
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, TokenRefusal
from vlm_operator.sizing.workload import ImageCount, Workload

MAX_DISTINCT_SUMS = 20_000
"""Above this many distinct sums the distribution is kept in steps of 16 tokens, rounded up."""


CONTEXT_STEP = 256
"""max_model_len is rounded up to a multiple of this, so that a small change of the workload restarts nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the declared requests ask of a server; tokens, patches and megapixels.

    ``images`` has the tokens and patches of each declared size. ``image_tokens_at`` maps 50, 95 and 99 to the image
    part of the prompt of that request; the ``mean_`` figures are per image token, so that a request's encoder and CPU
    work can be derived from its image tokens. ``mean_span`` is how many patches, itself included, a patch attends to
    in the tower.
    """

    figures: TokenFigures
    largest_image_tokens: int
    images: tuple[tuple[int, int], ...]
    image_tokens_at: Mapping[int, int]
    mean_patches_per_token: float
    mean_megapixels_per_token: float
    mean_tokens_per_image: float
    mean_span: float
    prompt_tokens_max: int


def measure_demand(workload: Workload, rule: ImageRule) -> Demand | TokenRefusal:
    """Return the demand of ``workload`` under the settings of ``rule``, or why an image cannot be counted."""
    counted: list[ImageTokens] = []
    for size in workload.image_sizes:
        tokens = rule.count_image(size.width, size.height)
        if isinstance(tokens, TokenRefusal):
            return tokens
        counted.append(tokens)
    weight = sum(size.weight for size in workload.image_sizes)
    shares = tuple(
        ImageShare(
            width=size.width,
            height=size.height,
            share=size.weight / weight,
            tokens=tokens.embed_tokens,
            prompt_tokens=tokens.prompt_tokens,
            resized=tokens.resized,
            tiles=tokens.tiles,
            kept_pixels=rule.kept_pixels(size.width, size.height) if rule.cap else None,
        )
        for size, tokens in zip(workload.image_sizes, counted, strict=True)
    )
    requests = _request_distribution(shares, workload.images_per_request)
    mean_prompt = sum(share.share * share.prompt_tokens for share in shares)
    patches = sum(share.share * tokens.vit_patches for share, tokens in zip(shares, counted, strict=True))
    pairs = sum(
        share.share * tokens.vit_patches**2 / (tokens.tiles or 1) for share, tokens in zip(shares, counted, strict=True)
    )
    return Demand(
        figures=_figures(workload, shares, requests),
        largest_image_tokens=max(share.tokens for share in shares),
        images=tuple(sorted({(tokens.embed_tokens, tokens.vit_patches) for tokens in counted})),
        image_tokens_at={p: percentile(requests, p) for p in (50, 95, 99)},
        mean_patches_per_token=patches / mean_prompt,
        mean_megapixels_per_token=sum(share.share * share.width * share.height / 1e6 for share in shares) / mean_prompt,
        mean_tokens_per_image=mean_prompt,
        mean_span=pairs / patches if patches else 0.0,
        prompt_tokens_max=workload.prompt_tokens_max + max(requests),
    )


def context_length(demand: Demand, config: Mapping[str, Any], asked: int | None = None) -> int | LengthRefusal:
    """Return max_model_len for ``demand``: its longest request rounded up, within what ``config.json`` allows.

    ``asked`` is the length where the user sets it; the longest request has to fit into it.
    """
    needed = demand.figures.request_max
    limit = derive_max_model_len(config, asked)
    if not isinstance(limit, int):
        return limit
    if asked is not None:
        return limit if needed <= limit else _too_short(needed, limit)
    if needed > limit:
        return LengthRefusal(
            reason="ContextTooLong",
            message=f"the largest declared request takes {needed:,} tokens; the model's context ends at {limit:,}; "
            "declare fewer or smaller images, or a lower quality.minPixelsPerImage",
        )
    return min(-(-needed // CONTEXT_STEP) * CONTEXT_STEP, limit)


def _too_short(needed: int, asked: int) -> LengthRefusal:
    return LengthRefusal(
        reason="ContextTooLong",
        message=f"the largest declared request takes {needed:,} tokens, --max-model-len allows {asked:,}; raise it or "
        "leave it out of engine.extraArgs",
    )


def percentile(distribution: Mapping[int, float], percent: int) -> int:
    """Return the smallest value that at least ``percent`` per cent of the distribution do not exceed."""
    total = sum(distribution.values())
    reached = 0.0
    value = 0
    for value in sorted(distribution):
        reached += distribution[value]
        if reached >= total * percent / 100 - 1e-9 * total:
            break
    return value


def _figures(workload: Workload, shares: tuple[ImageShare, ...], requests: Mapping[int, float]) -> TokenFigures:
    images: dict[int, float] = defaultdict(float)
    for share in shares:
        images[share.tokens] += share.share
    typical_text = workload.prompt_tokens_p50 + workload.output_tokens_p50
    most_text = workload.prompt_tokens_max + workload.output_tokens_max
    return TokenFigures(
        images=shares,
        image_p50=percentile(images, 50),
        image_p99=percentile(images, 99),
        image_max=max(images),
        request_p50=percentile(requests, 50) + typical_text,
        request_p99=percentile(requests, 99) + most_text,
        request_max=max(requests) + most_text,
    )


def _request_distribution(shares: Iterable[ImageShare], counts: Iterable[ImageCount]) -> dict[int, float]:
    """Return the distribution of a request's image prompt tokens: a sum of independent draws per image count."""
    one_image: dict[int, float] = defaultdict(float)
    for share in shares:
        one_image[share.prompt_tokens] += share.share
    weights: dict[int, float] = defaultdict(float)
    for entry in counts:
        weights[entry.count] += entry.weight
    sums: dict[int, float] = {0: 1.0}
    result: dict[int, float] = defaultdict(float)
    for count in range(max(weights) + 1):
        if count:
            sums = _add_draw(sums, one_image)
        for value, probability in sums.items():
            if weights.get(count):
                result[value] += probability * weights[count]
    return dict(result)


def _add_draw(sums: Mapping[int, float], draw: Mapping[int, float]) -> dict[int, float]:
    added: dict[int, float] = defaultdict(float)
    coarse = len(sums) * len(draw) > MAX_DISTINCT_SUMS * 10
    exact_top = max(sums) + max(draw)
    for value, probability in sums.items():
        for tokens, share in draw.items():
            total = value + tokens
            # The largest request must stay exact: the context length is set by it.
            key = total if not coarse or total == exact_top else min(-(-total // 16) * 16, exact_top)
            added[key] += probability * share
    return dict(added)
