"""The tokens of many images: percentiles, a histogram, what each cap trades, and the flags that set it.

Pure functions over a bound rule; the screen and the machine formats both read what they return.
"""

import json
import shlex
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vlm_operator.cli.image_sizes import Size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, ServerSettings, TokenRefusal

_PERCENTS: Final = (50, 90, 99)
_MOST_BINS: Final = 12
_MOST_STEPS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMix:
    """Images by how many tokens they take.

    Attributes:
        counted: Each accepted size with its tokens and how many images have it.
        refused: Each refused size with the reason and how many images have it.
    """

    counted: Sequence[tuple[Size, ImageTokens, int]]
    refused: Sequence[tuple[Size, TokenRefusal, int]]

    @property
    def images(self) -> int:
        """How many images are counted."""
        return sum(images for _, _, images in self.counted)

    def embed_tokens(self) -> dict[int, int]:
        """Return how many images take each number of image tokens."""
        return _sum_up((tokens.embed_tokens, images) for _, tokens, images in self.counted)

    def prompt_tokens(self) -> dict[int, int]:
        """Return how many images add each number of tokens to the prompt."""
        return _sum_up((tokens.prompt_tokens, images) for _, tokens, images in self.counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Images with ``low`` to ``high`` tokens, both included."""

    low: int
    high: int
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one value of the cap means for the images; ``kept`` is the share of the pixels kept without it."""

    value: int
    tokens: Mapping[str, int]
    kept: float
    refused: int
    flags: str


def count_mix(rule: ImageRule, counts: Mapping[Size, int]) -> TokenMix:
    """Count every size of ``counts``."""
    counted: list[tuple[Size, ImageTokens, int]] = []
    refused: list[tuple[Size, TokenRefusal, int]] = []
    for size, answer in zip(counts, rule.count_images(counts), strict=True):
        if isinstance(answer, ImageTokens):
            counted.append((size, answer, counts[size]))
        else:
            refused.append((size, answer, counts[size]))
    return TokenMix(counted=counted, refused=refused)


def figures(distribution: Mapping[int, int]) -> dict[str, int]:
    """Return p50, p90, p99 and max: the smallest value that so many per cent of the images do not exceed."""
    total, reached = sum(distribution.values()), 0
    found: dict[str, int] = {}
    waiting = list(_PERCENTS)
    for value in sorted(distribution):
        reached += distribution[value]
        while waiting and reached * 100 >= total * waiting[0]:
            found[f"p{waiting.pop(0)}"] = value
    return found | {"max": max(distribution)} if distribution else found


def histogram(distribution: Mapping[int, int]) -> list[Bin]:
    """Return the distribution in at most twelve bins: each value by itself, or steps of 1, 2 or 5 x 10^n."""
    if len(distribution) <= _MOST_BINS:
        return [Bin(low=value, high=value, images=distribution[value]) for value in sorted(distribution)]
    first, last = min(distribution), max(distribution)
    step = next(
        width
        for power in range(20)
        for width in (10**power, 2 * 10**power, 5 * 10**power)
        if last // width - first // width < _MOST_BINS
    )
    images: dict[int, int] = defaultdict(int)
    for value, number in distribution.items():
        images[value // step] += number
    return [
        Bin(low=at * step, high=(at + 1) * step - 1, images=images[at]) for at in range(first // step, last // step + 1)
    ]


def trade_off(rule: ImageRule, mix: TokenMix) -> list[Step]:
    """Return what values of the family's cap mean, from the present one down; none where there is no cap.

    The steps halve the value where the cap has many; a step that changes nothing for the images is left out.
    """
    cap = rule.cap
    if cap is None or not mix.counted:
        return []
    whole = _kept_pixels(rule, mix)
    steps: list[Step] = []
    for value in [cap.value, *_halvings(cap.value, cap.tighter)]:
        capped = rule if value == cap.value else rule.with_cap(value)
        step = _measure(value, capped, mix, whole)
        if not steps or (step.tokens, step.kept, step.refused) != (steps[-1].tokens, steps[-1].kept, steps[-1].refused):
            steps.append(step)
    return steps


def measure_cap(rule: ImageRule, capped: ImageRule, mix: TokenMix) -> Step:
    """Return what the cap of ``capped`` means for images that are counted without it by ``rule``."""
    value = capped.cap.value if capped.cap is not None else 0
    return _measure(value, capped, mix, _kept_pixels(rule, mix))


def engine_flags(settings: ServerSettings) -> str:
    """Return the flags of the engine's server for ``settings``, quoted for a shell; nothing where none is needed."""
    words: list[str] = []
    flags = {"--mm-processor-kwargs": settings.mm_processor_kwargs, "--hf-overrides": settings.hf_overrides}
    for flag, value in flags.items():
        if value:
            words += [flag, shlex.quote(json.dumps(value, sort_keys=True, separators=(",", ":")))]
    return " ".join(words)


def _measure(value: int, capped: ImageRule, mix: TokenMix, whole: int) -> Step:
    after = count_mix(capped, {size: images for size, _, images in mix.counted})
    return Step(
        value=value,
        tokens=figures(after.embed_tokens()),
        kept=_kept_pixels(capped, after) / whole,
        refused=sum(images for _, _, images in after.refused),
        flags=engine_flags(capped.settings),
    )


def _kept_pixels(rule: ImageRule, mix: TokenMix) -> int:
    return sum(rule.kept_pixels(*size) * images for size, _, images in mix.counted)


def _halvings(value: int, tighter: Sequence[int]) -> list[int]:
    """Return all of ``tighter`` if they are few, else the largest below each halving; descending."""
    if len(tighter) <= _MOST_STEPS:
        return list(reversed(tighter))

    found: list[int] = []
    while value > tighter[0]:
        value //= 2
        at = max(bisect_right(tighter, value), 1) - 1
        if not found or tighter[at] < found[-1]:
            found.append(tighter[at])
    return found


def _sum_up(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for value, images in pairs:
        found[value] += images
    return dict(found)
