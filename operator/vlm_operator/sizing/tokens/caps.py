"""The search for the tightest cap, and the settings that express it."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, ServerSettings


def tightest_cap(
    rule: ImageRule, sizes: Iterable[tuple[int, int]], *, min_pixels: int | None = None, min_tokens: int | None = None
) -> ImageRule | None:
    """Return ``rule`` under the tightest cap that keeps enough of each accepted image of ``sizes``.

    Args:
        rule: The rule under the settings that nothing may exceed.
        sizes: (width, height) of the images; one that the rule refuses sets no bound.
        min_pixels: Pixels of detail to keep of each image.
        min_tokens: Embedding tokens to keep of each image.

    An image never has to keep more than it has under ``rule``; without either floor it keeps all of that. Returns
    ``rule`` itself where no tighter cap keeps enough, None where the family has no cap.
    """
    cap = rule.cap
    if cap is None:
        return None
    needs = [
        (size, *_needs(rule, size, tokens, min_pixels, min_tokens))
        for size in dict.fromkeys(sizes)
        if isinstance(tokens := rule.count_image(*size), ImageTokens)
    ]
    if not needs:
        return rule

    def keeps(value: int) -> bool:
        capped = rule.with_cap(value)
        return all(_keeps(capped, size, pixels, embeds) for size, pixels, embeds in needs)

    if cap.monotone:
        at = bisect_left(cap.tighter, True, key=keeps)  # noqa: FBT003 - the key searched for
        return rule.with_cap(cap.tighter[at]) if at < len(cap.tighter) else rule
    found = next((value for value in cap.tighter if keeps(value)), None)
    return rule if found is None else rule.with_cap(found)


def _needs(
    rule: ImageRule, size: tuple[int, int], tokens: ImageTokens, min_pixels: int | None, min_tokens: int | None
) -> tuple[int, int]:
    """Return the pixels and the tokens that the image has to keep."""
    all_of_it = min_pixels is None and min_tokens is None
    has = rule.kept_pixels(*size)
    pixels = has if all_of_it else min(has, min_pixels or 0)
    return pixels, min(tokens.embed_tokens, min_tokens or 0)


def _keeps(rule: ImageRule, size: tuple[int, int], pixels: int, embeds: int) -> bool:
    tokens = rule.count_image(*size)
    return isinstance(tokens, ImageTokens) and tokens.embed_tokens >= embeds and rule.kept_pixels(*size) >= pixels


def with_kwarg(settings: ServerSettings, drop: Sequence[str], given: Mapping[str, Any]) -> ServerSettings:
    """Return ``settings`` with ``given`` as flat processor settings and ``drop`` gone in both forms."""
    kwargs = {key: value for key, value in settings.mm_processor_kwargs.items() if key not in drop}
    scoped = {key: value for key, value in dict(kwargs.pop("images_kwargs", {})).items() if key not in drop}
    if scoped:
        kwargs["images_kwargs"] = scoped
    return replace(settings, mm_processor_kwargs={**kwargs, **given})
