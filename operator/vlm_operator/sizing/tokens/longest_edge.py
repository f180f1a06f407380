"""Images shrunk to a longest edge and cut into a grid: Mistral 3, Pixtral (both checkpoint formats).

An image with a side above ``longest_edge`` is scaled down so that the longer side fits. Each side then
becomes ceil(side / unit) tokens, unit = patch size x merge size. Every row ends with a break token, the last
with an end token; both lie inside the placeholder but are no embeddings. Source: PixtralImageProcessor of
``transformers``, the image encoder of ``mistral_common``, and the Mistral3 and Pixtral processing information
of the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import Cap, ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal
from vlm_operator.units import ceil_div

Rounding = Literal["floor", "nearest"]


class EdgeShape(NamedTuple):
    """What the count depends on.

    ``unit`` is the side in pixels of the square that becomes one token. ``rounding`` is how a scaled-down side
    becomes whole pixels: ``floor`` in ``transformers``, ``nearest`` in ``mistral_common``.
    """

    unit: int
    merge_size: int
    longest_edge: int
    rounding: Rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestEdge(ImageRule):
    """The rule bound to one model; ``adjustable`` is false where the engine takes the edge from the checkpoint."""

    shape: EdgeShape
    adjustable: bool = True

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
        if not self.adjustable:
            return None
        unit, edge = self.shape.unit, self.shape.longest_edge
        return Cap(name="size.longest_edge", value=edge, tighter=range(unit, edge, unit))

    def with_cap(self, value: int) -> "LongestEdge":
        """Return the rule with ``size.longest_edge`` at ``value``."""
        settings = caps.with_kwarg(self.settings, ("size",), {"size": {"longest_edge": value}})
        return replace(self, settings=settings, shape=self.shape._replace(longest_edge=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area that the grid covers after the resize."""
        columns, rows = _grid(width, height, self.shape)
        return columns * rows * self.shape.unit**2


def build_llava_pixtral(source: reading.Source) -> ImageRule:
    """Bind the rule of LLaVA with a Pixtral tower."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"size"})
    name = source.model_id
    edge = reading.first_int(name, (given, "size.longest_edge"), (source.processor, "size.longest_edge"))
    image_size = reading.first_int(source.model_id, (source.config, "vision_config.image_size"))
    if edge != image_size:
        raise reading.Refused(
            "SettingMismatch",
            f"size.longest_edge is {edge}, but vision_config.image_size is {image_size}: the engine would "
            f"apply the "
            "edge to the pixels and the image size to the count, and requests would fail; set both, the "
            "latter with "
            f'--hf-overrides \'{{"vision_config": {{"image_size": {edge}}}}}\'',
        )
    return LongestEdge(
        settings=source.settings,
        model_id=name,
        shape=EdgeShape(
            unit=reading.first_int(name, (source.config, "vision_config.patch_size")),
            merge_size=1,
            longest_edge=edge,
            rounding="floor",
        ),
        adjustable=False,
    )


def build_mistral3(source: reading.Source) -> ImageRule:
    """Bind Mistral 3's rule for the Hugging Face format."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"size"})
    if "size" in given:
        if not isinstance(given["size"], Mapping):
            raise reading.Refused(
                "InvalidSetting", f"mm_processor_kwargs.size is {given['size']!r}, but must be an object"
            )
        reading.refuse_unknown({f"size.{key}": value for key, value in given["size"].items()}, {"size.longest_edge"})
    name = source.model_id
    merge_size = reading.first_int(
        name, (source.config, "spatial_merge_size"), (source.processor, "spatial_merge_size")
    )
    shape = EdgeShape(
        unit=reading.first_int(name, (source.config, "vision_config.patch_size")) * merge_size,
        merge_size=merge_size,
        longest_edge=reading.first_int(name, (given, "size.longest_edge"), (source.processor, "size.longest_edge")),
        rounding="floor",
    )
    return LongestEdge(settings=source.settings, model_id=name, shape=shape)


def build_mistral_format(source: reading.Source) -> ImageRule:
    """Bind the rule of ``--config-format mistral``, where processor settings are disregarded.

    The values stand in params.json (``vision_encoder``) or in the twin config.json (``vision_config``).
    """
    config, name = source.config, source.model_id
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
        adjustable=False,
        ignored_settings=tuple(reading.dotted(source.settings.mm_processor_kwargs, "mm_processor_kwargs.")),
    )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: EdgeShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    columns, rows = _grid(width, height, shape)
    tokens = columns * rows
    return ImageTokens(
        tokens,
        tokens + rows,
        tokens + rows,
        tokens * shape.merge_size**2,
        resized=(columns * shape.unit, rows * shape.unit),
        grid=(columns, rows),
    )


def _grid(width: int, height: int, shape: EdgeShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens."""
    unit, _, longest_edge, rounding = shape
    scale = max(width / longest_edge, height / longest_edge)
    if scale > 1:
        whole = round if rounding == "nearest" else int
        width, height = max(1, whole(width / scale)), max(1, whole(height / scale))
    return ceil_div(width, unit), ceil_div(height, unit)
