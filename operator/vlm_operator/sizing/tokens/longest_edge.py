"""Images shrunk to a longest edge and cut into a grid: Mistral 3, LightOnOCR, Pixtral (both checkpoint formats).

An image with a side above ``longest_edge`` is scaled down so that the longer side fits. Each side then becomes
ceil(side / unit) tokens, unit = patch size x merge size. In ``transformers`` scaled sides are floored, and an image of
which no pixel is left is an error. Every row ends with a break token, the last with an end token; both lie inside the
placeholder but are no embeddings. LightOnOCR has neither. Source: PixtralImageProcessor of ``transformers``, the image
encoder of ``mistral_common``, and the Mistral3, LightOnOCR, LLaVA and Pixtral processing information of the engine.

Where the pixels come from: Mistral 3's count follows the processor's ``size.longest_edge``. LLaVA and LightOnOCR
count with ``vision_config.image_size`` of config.json while the processor resizes to its own edge, so both must be
set alike. The Mistral format takes the edge from the checkpoint and disregards settings.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    grid_tokens,
)
from vlm_operator.units import ceil_div

Rounding = Literal["floor", "nearest"]
Lever = Literal["processor", "processor_and_config"]


class EdgeShape(NamedTuple):
    """What the count depends on.

    ``unit`` is the side in pixels of the square that becomes one token. ``rounding`` is how a scaled-down side
    becomes whole pixels: ``floor`` in ``transformers``, ``nearest`` in ``mistral_common``. ``row_breaks`` tells
    whether a token ends each row.
    """

    unit: int
    merge_size: int
    longest_edge: int
    rounding: Rounding
    row_breaks: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestEdge(ImageRule):
    """The rule bound to one model; ``lever`` names what the cap sets, None where the checkpoint fixes the edge."""

    shape: EdgeShape
    lever: Lever | None = "processor"

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: a square of the longest edge, which is also the engine's dummy."""
        tokens = ceil_div(self.shape.longest_edge, self.shape.unit) ** 2
        size = (self.shape.longest_edge, self.shape.longest_edge)
        return MaximumTokens(
            true_tokens=tokens,
            true_size=size,
            engine_tokens=tokens,
            dummy_size=size,
            dummy_tokens=tokens,
            dummy_patches=tokens * self.shape.merge_size**2,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the break or end token of each row."""
        rows = tokens.prompt_tokens - tokens.embed_tokens
        return Part("grid", tokens.embed_tokens, 1), Part("row breaks and end", rows, 1, embedded=False)

    @property
    def cap(self) -> Cap | None:
        """The longest edge in whole tokens, where it can be set."""
        if self.lever is None:
            return None
        unit, edge = self.shape.unit, self.shape.longest_edge
        return Cap(name="size.longest_edge", value=edge, tighter=range(unit, edge, unit))

    def with_cap(self, value: int) -> "LongestEdge":
        """Return the rule with ``size.longest_edge`` at ``value``."""
        settings = caps.with_kwarg(self.settings, ("size",), {"size": {"longest_edge": value}})
        if self.lever == "processor_and_config":
            override = {"vision_config": {"image_size": value}}
            settings = replace(settings, hf_overrides=reading.merge(settings.hf_overrides, override))
        return replace(self, settings=settings, shape=self.shape._replace(longest_edge=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area that the grid covers after the resize."""
        columns, rows = _grid(width, height, self.shape)
        return columns * rows * self.shape.unit**2


def build_llava_pixtral(source: reading.Source) -> ImageRule:
    """Bind the rule of LLaVA with a Pixtral tower."""
    return _build_agreed(source, merge_size=1, row_breaks=True)


def build_lightonocr(source: reading.Source) -> ImageRule:
    """Bind LightOnOCR's rule."""
    return _build_agreed(source, merge_size=_read_merge_size(source), row_breaks=False)


def build_mistral3(source: reading.Source) -> ImageRule:
    """Bind Mistral 3's rule for the Hugging Face format."""
    shape = _read_shape(source, _read_edge(source), _read_merge_size(source))
    return LongestEdge(settings=source.settings, model_id=source.model_id, shape=shape)


def _build_agreed(source: reading.Source, *, merge_size: int, row_breaks: bool) -> ImageRule:
    """Bind a rule whose pixels follow the processor's edge and whose count follows ``vision_config.image_size``."""
    edge = _read_edge(source)
    image_size = reading.first_int(source.model_id, (source.config, "vision_config.image_size"))
    if edge != image_size:
        size, override = {"size": {"longest_edge": edge}}, {"vision_config": {"image_size": edge}}
        raise reading.Refused(
            "SettingMismatch",
            f"size.longest_edge is {edge}, but vision_config.image_size is {image_size}: the engine would apply the "
            "edge to the pixels and the image size to the count, and requests would fail; set both: "
            f"--mm-processor-kwargs '{json.dumps(size)}' --hf-overrides '{json.dumps(override)}'",
        )
    shape = _read_shape(source, edge, merge_size)._replace(row_breaks=row_breaks)
    return LongestEdge(settings=source.settings, model_id=source.model_id, shape=shape, lever="processor_and_config")


def _read_shape(source: reading.Source, longest_edge: int, merge_size: int) -> EdgeShape:
    patch_size = reading.first_int(source.model_id, (source.config, "vision_config.patch_size"))
    return EdgeShape(unit=patch_size * merge_size, merge_size=merge_size, longest_edge=longest_edge, rounding="floor")


def _read_edge(source: reading.Source) -> int:
    """Return the edge that the processor shrinks to: the setting, else the checkpoint's."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"size"})
    size = given.get("size", {})
    if not isinstance(size, Mapping):
        raise reading.Refused("InvalidSetting", f"mm_processor_kwargs.size is {size!r}, but must be an object")
    reading.refuse_unknown({f"size.{key}": value for key, value in size.items()}, {"size.longest_edge"})
    return reading.first_int(source.model_id, (given, "size.longest_edge"), (source.processor, "size.longest_edge"))


def _read_merge_size(source: reading.Source) -> int:
    """Return the merge size; the processor resizes to whole squares of its own, the count takes config.json's."""
    if source.config.get("spatial_merge_size") is None:
        return reading.first_int(source.model_id, (source.processor, "spatial_merge_size"))
    return reading.same_in_both(source, "spatial_merge_size", "spatial_merge_size")


def build_mistral_format(source: reading.Source) -> ImageRule:
    """Bind the rule of ``--config-format mistral``, where processor settings are disregarded.

    The values stand in params.json (``vision_encoder``) or in the twin config.json (``vision_config``).
    """
    config, name = source.config, source.model_id
    for key in ("vision_encoder", "vision_config"):
        if key in source.settings.hf_overrides:
            raise reading.Refused(
                "SettingMismatch",
                f"hf_overrides.{key} would change the tower, but not how images are resized and counted: in Mistral's "
                "format the engine takes that from the tokenizer file; drop the override",
            )
    encoder, tower = (config, "vision_encoder.{}"), (config, "vision_config.{}")

    def read(*fields: str, default: int | None = None) -> int:
        places = [(document, path.format(field)) for field in fields for document, path in (encoder, tower)]
        return reading.first_int(name, *places, (config, fields[-1]), default=default)

    merge_size = read("spatial_merge_size", default=1)
    return LongestEdge(
        settings=source.settings,
        model_id=name,
        shape=EdgeShape(
            unit=read("patch_size") * merge_size,
            merge_size=merge_size,
            longest_edge=read("max_image_size", "image_size"),
            rounding="nearest",
        ),
        lever=None,
        ignored_settings=tuple(reading.dotted(source.settings.mm_processor_kwargs, "mm_processor_kwargs.")),
    )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: EdgeShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    if shape.rounding == "floor" and min(width, height) * shape.longest_edge < max(width, height):
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: shrunk to a longest edge of {shape.longest_edge} pixels no whole "
            "pixel of its short side is left, and the image processor fails; crop the image or cut it into several",
        )
    columns, rows = _grid(width, height, shape)
    return grid_tokens(columns, rows, shape.unit, shape.merge_size, inside=rows if shape.row_breaks else 0)


def _grid(width: int, height: int, shape: EdgeShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens."""
    unit, _, longest_edge, rounding, _ = shape
    longest = max(height, width)
    if longest > longest_edge:
        scale = longest / longest_edge
        whole = round if rounding == "nearest" else int
        width, height = whole(width / scale) or 1, whole(height / scale) or 1
    return -(-width // unit), -(-height // unit)
