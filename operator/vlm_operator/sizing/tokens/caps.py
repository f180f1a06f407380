"""What the rules share when they look for the tightest cap."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vlm_operator.sizing.tokens.types import ImageTokens, ServerSettings, TokenRefusal


def smallest(low: int, high: int, keeps: Callable[[int], bool]) -> int:
    """Return the smallest value of ``low``…``high`` that keeps enough; ``high`` does; larger keeps more.

    Where larger does not always keep more the result still keeps enough, but need not be the smallest.
    """
    while low < high:
        middle = (low + high) // 2
        if keeps(middle):
            high = middle
        else:
            low = middle + 1
    return high


def countable(
    count: Callable[[int, int], ImageTokens | TokenRefusal], sizes: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the distinct sizes that the rule accepts; a refused image sets no bound."""
    return [size for size in dict.fromkeys(sizes) if isinstance(count(*size), ImageTokens)]


def with_kwarg(settings: ServerSettings, drop: Sequence[str], given: Mapping[str, Any]) -> ServerSettings:
    """Return ``settings`` with ``given`` as flat processor settings and ``drop`` gone in both forms."""
    kwargs = {key: value for key, value in settings.mm_processor_kwargs.items() if key not in drop}
    scoped = {key: value for key, value in dict(kwargs.pop("images_kwargs", {})).items() if key not in drop}
    if scoped:
        kwargs["images_kwargs"] = scoped
    return ServerSettings(
        mm_processor_kwargs={**kwargs, **given},
        hf_overrides=settings.hf_overrides,
        config_format=settings.config_format,
    )
