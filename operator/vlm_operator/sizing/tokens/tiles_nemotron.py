"""Nemotron-H vision models: tiles like InternVL's, or the whole image at its own resolution within a patch budget.

A checkpoint whose ``vision_config.args`` has ``min_num_patches`` takes the second way. An image is measured in patches,
each side rounded up (one that already fits may get a patch more, as rounding half to even falls), shrunk to the patch
budget, enlarged to the least number of patches, and made even on both sides. Four patches make a token. The budget is
``max_num_patches`` or what the context leaves, whichever is less. Source: the engine's processor and processing
information of nano_nemotron_vl.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.tiles import ListedTiles, largest_grid
from vlm_operator.sizing.tokens.tiles_internvl import read_shape
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal, image_tokens

_TAGS: Final = 2
_DEFAULT_TILES: Final = 12
"""The engine's own limit, whatever the checkpoint says."""
_LIMIT: Final = "max_num_tiles"
_MERGE: Final = 2
_RESERVED: Final = 4
"""Tokens of the context that the engine keeps free of images."""
_ROUNDS: Final = 10


class PatchBudget(NamedTuple):
    """What the count depends on; ``context`` is the model's length in tokens, ``max_patches`` None where unlimited."""

    patch_size: int
    min_patches: int
    max_patches: int | None
    context: int

    @property
    def available(self) -> int:
        """Patches that the context leaves to one image, the least number at any rate."""
        return max((self.context - _RESERVED) * _MERGE**2, self.min_patches)

    @property
    def budget(self) -> int:
        """Patches that one image may take before its sides are made even."""
        most = self.available if self.max_patches is None else min(self.available, self.max_patches)
        return max(most, self.min_patches)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicResolution(ImageRule):
    """The rule bound to one model. The engine's maximum fills the context, which no image does."""

    hint_lowers_budget: ClassVar[bool] = False
    follows_context: ClassVar[bool] = True
    shape: PatchBudget

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels, alone in a prompt without text."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image and what the engine thinks it is: a square that fills the context."""
        true_size, true = _largest(self.shape)
        side = math.isqrt(self.shape.context - _RESERVED)
        dummy_side = side * _MERGE * self.shape.patch_size
        dummy = _measure(dummy_side, dummy_side, self.shape)
        return MaximumTokens(
            true_tokens=true.embed_tokens,
            true_size=true_size,
            engine_tokens=side**2,
            dummy_size=(dummy_side, dummy_side),
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the image's tokens and the tags."""
        return Part("image", tokens.embed_tokens, 1), Part("start and end", _TAGS, 1, embedded=False)


def build_nemotron_h(source: reading.Source) -> ImageRule:
    """Bind the rule of a Nemotron-H vision model."""
    given = source.settings.mm_processor_kwargs
    for key, value in given.items():
        if key != _LIMIT:
            raise reading.Refused(
                "StartupFails",
                f"mm_processor_kwargs.{key} = {value!r} stops the server of {source.model_id or 'this model'} from "
                f"starting (TypeError): it takes {_LIMIT} alone; drop it",
            )
    most = reading.first_int(source.model_id, (given, _LIMIT), default=_DEFAULT_TILES)
    arguments = reading.find(source.config, "vision_config.args") or {}
    if "min_num_patches" in arguments:
        return DynamicResolution(
            settings=source.settings,
            model_id=source.model_id,
            shape=_read_budget(source),
            ignored_settings=tuple(f"mm_processor_kwargs.{key}" for key in given),
        )
    shape = read_shape(
        source,
        reading.first_int(source.model_id, (source.config, "force_image_size")),
        (1, most),
        thumbnail=reading.boolean("use_thumbnail", source.config.get("use_thumbnail")),
        limit=_LIMIT,
        patch_paths=("patch_size",),
    )
    return ListedTiles(
        settings=source.settings, model_id=source.model_id, shape=shape, cap_name=_LIMIT, dummy_grid=largest_grid
    )


def _read_budget(source: reading.Source) -> PatchBudget:
    ratio = source.config.get("downsample_ratio")
    if ratio != 1 / _MERGE:
        raise reading.Refused(
            "StartupFails",
            f"downsample_ratio is {ratio!r}, but the engine's dynamic resolution takes {1 / _MERGE} alone; correct it",
        )
    config, name = source.config, source.model_id
    most = reading.find(config, "vision_config.args.max_num_patches")
    context = source.settings.max_model_len or reading.first_int(
        name, (config, "llm_config.max_position_embeddings"), (config, "text_config.max_position_embeddings")
    )
    return PatchBudget(
        patch_size=reading.first_int(name, (config, "patch_size")),
        min_patches=reading.first_int(name, (config, "vision_config.args.min_num_patches")),
        max_patches=None if most == 0 else reading.first_int(name, (config, "vision_config.args.max_num_patches")),
        context=_RESERVED + reading.positive_int(f"the model's length less {_RESERVED}", context - _RESERVED),
    )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: PatchBudget) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    tokens = _measure(width, height, shape)
    return tokens if tokens.embed_tokens else _refuse_strip(width, height)


def _refuse_strip(width: int, height: int) -> TokenRefusal:
    return TokenRefusal(
        reason="AspectRatioTooLarge",
        message=f"image size {width}x{height} is so long that what the patch budget and the context leave of its short "
        "side is nothing, and the engine fails on it; cut or pad the image",
    )


def _measure(width: int, height: int, shape: PatchBudget) -> ImageTokens:
    """Return the count, no patches where nothing is left of a side."""
    # Round half to even, as the engine does.
    sides = (round(width / shape.patch_size + 0.5), round(height / shape.patch_size + 0.5))
    columns, rows = _fit_context(sides, shape)
    patches = columns * rows
    embed = patches // _MERGE**2
    return image_tokens(
        embed_tokens=embed,
        placeholder_length=embed + _TAGS,
        prompt_tokens=embed + _TAGS,
        vit_patches=patches,
        resized=(columns * shape.patch_size, rows * shape.patch_size),
    )


def _fit_context(sides: tuple[int, int], shape: PatchBudget) -> tuple[int, int]:
    """Return (columns, rows) of patches, (0, 0) where the engine finds none that the context leaves room for."""
    budget = shape.budget
    for _ in range(_ROUNDS):
        columns, rows = _fit(sides, budget, shape.min_patches)
        if columns * rows <= shape.available:
            return columns, rows
        smaller = max(shape.min_patches, int(columns * rows * (shape.available / (columns * rows))))
        budget = smaller if smaller < budget else shape.min_patches
    return 0, 0


def _fit(sides: tuple[int, int], budget: int, least: int) -> tuple[int, int]:
    """Return (columns, rows) of patches for an image of ``sides`` patches, (0, 0) where a side shrinks to nothing."""
    factor = min(math.sqrt(budget / (sides[0] * sides[1])), 1.0)
    columns, rows = math.floor(factor * sides[0]), math.floor(factor * sides[1])
    if columns * rows == 0:
        return 0, 0
    if budget > least > columns * rows:
        factor = math.sqrt(least / (columns * rows))
        columns, rows = math.ceil(factor * columns), math.ceil(factor * rows)
    rows = _make_even(rows, columns, budget)
    return _make_even(columns, rows, budget), rows


def _make_even(side: int, other: int, budget: int) -> int:
    odd = side % _MERGE
    if odd and (side + odd) * other <= budget:
        return side + odd
    return max(_MERGE, side - odd)


@lru_cache(maxsize=256)
def _largest(shape: PatchBudget) -> tuple[tuple[int, int], ImageTokens]:
    """Return the size and the count of the largest image.

    An image that needs no resizing takes the whole budget. A strip of one row of patches may take twice as much: its
    row becomes two even where the budget is spent, as long as the context leaves room.
    """
    quarter = max(1, shape.budget // _MERGE**2)
    rows = next(side for side in range(math.isqrt(quarter), 0, -1) if quarter % side == 0)
    half = shape.available // _MERGE
    strips = ((side, 1) for side in (shape.budget, shape.min_patches - 1, half, half + 1) if side > 0)
    grids = ((_MERGE * quarter // rows, _MERGE * rows), *strips)
    sizes = [(shape.patch_size * (x - 1) + 1, shape.patch_size * (y - 1) + 1) for x, y in grids]
    return max(((size, _measure(*size, shape)) for size in sizes), key=lambda found: found[1].embed_tokens)
