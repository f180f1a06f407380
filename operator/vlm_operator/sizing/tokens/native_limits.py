"""Qwen's grid (``native_grid``) where the engine sets the pixel limits itself: Alpamayo 2 Super and D3.

Limits in the processor files do not count. Settings do, as for Qwen3-VL. Source: the engine's processing information
of the two families.
"""

from dataclasses import replace
from typing import Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.native_grid import NativeGrid, build_native_grid

_D3_LIMITS: Final = (65_536, 1_638_400)
_ALPAMAYO_LIMITS: Final = (163_840, 196_608)
"""Defaults of the engine's configuration class."""


def build_d3(source: reading.Source) -> NativeGrid:
    """Bind D3, whose limits no file changes."""
    return _bind(source, *_D3_LIMITS)


def build_alpamayo2(source: reading.Source) -> NativeGrid:
    """Bind Alpamayo 2 Super, whose limits are in config.json; with one of them null the processor file's count."""
    low, high = (
        source.config.get(key, default)
        for key, default in zip(("min_pixels", "max_pixels"), _ALPAMAYO_LIMITS, strict=True)
    )
    nested = "vlm_config.vision_config"
    where = nested if reading.find(source.config, nested) is not None else "vision_config"
    if low is None or high is None:
        return build_native_grid(source, completes_size=True, vision_config=where)
    return _bind(
        source,
        reading.positive_int("min_pixels", low),
        reading.positive_int("max_pixels", high),
        vision_config=where,
    )


def _bind(
    source: reading.Source, min_pixels: int, max_pixels: int, *, vision_config: str = "vision_config"
) -> NativeGrid:
    size = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    kept = {key: value for key, value in source.processor.items() if key not in ("min_pixels", "max_pixels")}
    fixed = replace(source, processor={**kept, "size": size})
    return build_native_grid(fixed, completes_size=True, vision_config=vision_config)
