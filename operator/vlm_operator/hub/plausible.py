"""What no configuration of a real model holds. Files come from strangers; the planner reckons with what they say. Pure.

A layer count of a billion would cost the operator its memory, a patch of no pixels a division by zero. Called by
``card`` before anything else reads a file.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from vlm_operator.sizing.legality import LENGTH_KEYS

MOST_LAYERS: Final = 1024
MOST_PIECES: Final = 65_536
"""Tiles, crops or patches along a side: rules try each number of them."""
MOST: Final = 10**12
"""No count, size or frequency of a model comes near."""

_SECTION: Final = re.compile(r"(_config|_scaling|^rope_parameters|^img_processor)$")
_LAYERS: Final = re.compile(r"(layers?|depth|blocks|_levels)$")
_PIECES: Final = re.compile(r"(tiles|crops|slices?(_nums)?|patch(es)?|on_one_side|max_num)$")
_LENGTHS: Final = frozenset({*LENGTH_KEYS, "model_max_length", "original_max_position_embeddings"})
_COUNTS: Final = frozenset(
    {
        *("hidden_size", "intermediate_size", "vocab_size", "embed_dim", "head_dim", "global_head_dim"),
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "num_heads", "depth"),
        *_LENGTHS,
        *("patch_size", "image_size", "spatial_merge_size", "temporal_patch_size"),
        *("pooling_kernel_size", "linear_conv_kernel_dim"),
    }
)
"""Things and sides of things: at least one, and no part of one."""

_RATIOS: Final = frozenset(
    {"mlp_ratio", "hidden_stride", "downsample_ratio", "downsample_factor", "scale_factor", "factor"}
)
"""Above 0, and whole or not."""
_SINGLE: Final = _LENGTHS | {"factor"}
"""One for the whole model, where others may be one for each layer or side."""


def find_implausible(document: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield what is wrong with each value that no model has: its place, the value and what it should be."""
    for key, value in document.items():
        place = f"{path}{key}"
        if _SECTION.search(key) and value is not None and not isinstance(value, Mapping):
            yield f"{place} is {_shown(value)}, but must be an object"
        elif isinstance(value, Mapping) and key not in _SINGLE:
            yield from find_implausible(value, f"{place}.")
        else:
            numbers = value if isinstance(value, list) and key not in _SINGLE else [value]
            yield from (f"{place} {why}" for number in numbers if (why := _wrong(key, number)))


def _wrong(key: str, value: Any) -> str:
    """Return what is wrong with a value of this key, empty where nothing is."""
    if isinstance(value, list | Mapping) and key not in _SINGLE:
        return ""
    if key in _COUNTS | _RATIOS and value is not None:
        whole = "whole " if key in _COUNTS else ""
        if not _is_number(value) or value <= 0 or (whole and value % 1):
            return f"is {_shown(value)}, but must be a {whole}number above 0"
    if not _is_number(value):
        return ""
    if _LAYERS.search(key) and abs(value) > MOST_LAYERS:
        return f"is {_shown(value)}; at most {MOST_LAYERS:,} can be sized"
    if _PIECES.search(key) and abs(value) > MOST_PIECES:
        return f"is {_shown(value)}; at most {MOST_PIECES:,} can be counted"
    return "" if abs(value) <= MOST else f"is {_shown(value)}, which is more than any model has"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
