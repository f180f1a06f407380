"""Native resolution within a number of tokens that includes a token at the end of each row: DeepSeek-V4 and V4.1.

Each side is rounded up to whole patches; ``downsample`` squared patches make a token, rounded up too. Row ends and a
token at the start and at the end of the image count towards the limit. An image above it is shrunk so that its aspect
stays, an image of too few pixels is enlarged first, and one that is wider than ``max_ratio`` times its height is taken
to be just as wide.

V4 arranges rows in pairs, so it adds a row of padding to an odd number of rows, and two tokens where that makes an odd
number of quadruples; its limit keeps three tokens for the padding that aligns the image in the prompt. Only the grid is
embedded. V4.1 has no padding, and its row ends, start and end are embedding slots as well.

The padding before an image of V4 depends on where in the prompt it stands: three tokens less its position modulo 4.
Prompt tokens here are those of an image that stands first, which has the most. Source: the engine's processors for the
two families.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    image_tokens,
)

_ALIGNMENT: Final = 3
_ENDS: Final = 2
_LEVER: Final = "vision_max_n_token"
_SMALLEST_LIMIT: Final = 64
"""A tighter limit would leave strips that the engine cannot shrink to it."""


class RowShape(NamedTuple):
    """What the count depends on; ``max_tokens`` is the whole limit, ``paired`` tells V4 from V4.1."""

    patch_size: int
    downsample: int
    max_tokens: int
    min_pixels: int
    max_ratio: float | None
    paired: bool

    @property
    def limit(self) -> int:
        """Return the tokens that the image itself may take."""
        return self.max_tokens - _ALIGNMENT if self.paired else self.max_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEnds(ImageRule):
    """The rule bound to one model and its settings. The engine reserves the limit, V4 with its alignment on top."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: RowShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine draws the grid with the most patches that it finds."""
        return _maximum(self.shape)

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid, its row ends, the padding and the tags."""
        columns, rows = tokens.grid or (0, 0)
        embedded = not self.shape.paired
        padding = tokens.placeholder_length - rows * (columns + 1) - _ENDS
        return (
            Part("grid", columns * rows, 1),
            Part("row ends", rows, 1, embedded=embedded),
            Part("padding, of an image that stands first", padding, 1, embedded=False),
            Part("start and end", _ENDS, 1, embedded=embedded),
        )

    @property
    def cap(self) -> Cap:
        """The limit of tokens."""
        most = self.shape.max_tokens
        lowest = max(_SMALLEST_LIMIT, _least_limit(self.shape))
        return Cap(name=f"hf_overrides.{_LEVER}", value=most, tighter=range(lowest, most), monotone=False)

    def with_cap(self, value: int) -> "RowEnds":
        """Return the rule with ``vision_max_n_token`` overridden to ``value``."""
        settings = replace(self.settings, hf_overrides={**self.settings.hf_overrides, _LEVER: value})
        return replace(self, settings=settings, shape=self.shape._replace(max_tokens=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        across, down = fit_rows(width, height, self.shape)
        return across * down * self.shape.patch_size**2


def build_deepseek_v4(source: reading.Source) -> RowEnds:
    """Bind DeepSeek-V4, whose vision figures lie flat in config.json."""
    name, config = source.model_id, source.config
    return _bind(
        source,
        RowShape(
            patch_size=reading.first_int(name, (config, "vision_patch_size")),
            downsample=reading.first_int(name, (config, "vision_downsample_ratio")),
            max_tokens=reading.first_int(name, (config, _LEVER)),
            min_pixels=_read_floor(name, config, "vision_min_pixels", None),
            max_ratio=_read_ratio(config, "vision_max_wh_ratio"),
            paired=True,
        ),
    )


def build_deepseek_v41(source: reading.Source) -> RowEnds:
    """Bind DeepSeek-V4.1, whose ``vision_config`` the engine copies to flat names before overrides reach them."""
    if "vision_config" in source.settings.hf_overrides:
        raise reading.Refused(
            "SettingMismatch",
            f"hf_overrides.vision_config of {source.model_id or 'this model'} comes after the engine has read that "
            f"section and changes no image; override {_LEVER} instead",
        )
    name, config = source.model_id, source.config

    def read(flat: str, nested: str, default: int) -> int:
        return reading.first_int(name, (config, flat), (config, f"vision_config.{nested}"), default=default)

    nested = config.get("vision_config") or {}
    ratio_at = config if "vision_max_wh_ratio" in config else {"vision_max_wh_ratio": nested.get("max_wh_ratio")}
    floor_at = config if "vision_min_pixels" in config else {"vision_min_pixels": nested.get("min_pixels", 295_936)}
    # The defaults are those of the engine's configuration class.
    return _bind(
        source,
        RowShape(
            patch_size=read("vision_patch_size", "patch_size", 14),
            downsample=read("vision_downsample_ratio", "downsample_ratio", 3),
            max_tokens=read(_LEVER, "max_image_tokens", 1024),
            min_pixels=_read_floor(name, floor_at, "vision_min_pixels", None),
            max_ratio=_read_ratio(ratio_at, "vision_max_wh_ratio"),
            paired=False,
        ),
    )


def _read_floor(name: str, document: Any, key: str, default: int | None) -> int:
    """Return the least number of pixels; 0 turns enlarging off."""
    return 0 if document.get(key) == 0 else reading.first_int(name, (document, key), default=default)


def _read_ratio(document: Any, key: str) -> float | None:
    """Return the widest aspect, as the file writes it, None where it sets none."""
    value: int | float | None = document.get(key)
    if value is not None:
        reading.positive_number(key, value)
    # A whole number stays one, as in the engine's arithmetic.
    return value


def _bind(source: reading.Source, shape: RowShape) -> RowEnds:
    name = source.model_id or "this model"
    for key, value in source.settings.mm_processor_kwargs.items():
        raise reading.Refused(
            "StartupFails",
            f"mm_processor_kwargs.{key} = {value!r} stops the server of {name} from starting, whose processor takes "
            f"no settings; use --hf-overrides '{{\"{_LEVER}\": N}}' instead",
        )
    least = max(_SMALLEST_LIMIT, _least_limit(shape))
    if shape.max_tokens < least:
        raise reading.Refused(
            "InvalidSetting",
            f"{_LEVER} is {shape.max_tokens:,}, but images of {name} are counted from {least:,} on, below which the "
            f"least size of {shape.min_pixels:,} pixels does not fit; raise it",
        )
    return RowEnds(settings=source.settings, model_id=source.model_id, shape=shape)


def _least_limit(shape: RowShape) -> int:
    """Return the limit from which on each grid that fills it has the least number of pixels: half may be row ends."""
    return 2 * shape.min_pixels // (shape.patch_size * shape.downsample) ** 2 + 16


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: RowShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    across, down = fit_rows(width, height, shape)
    if not across or not down:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: shrinking it to {shape.limit:,} tokens leaves nothing of one side; "
            "crop the image or cut it into several",
        )
    return _tokens(across, down, shape)


def _tokens(across: int, down: int, shape: RowShape) -> ImageTokens:
    columns, rows = -(-across // shape.downsample), -(-down // shape.downsample)
    inner = count_grid(columns, rows, paired=shape.paired)
    length = inner + _ALIGNMENT if shape.paired else inner
    return image_tokens(
        columns * rows if shape.paired else inner,
        length,
        length,
        across * down,
        (across * shape.patch_size, down * shape.patch_size),
        None,
        (columns, rows),
    )


def count_grid(columns: int, rows: int, *, paired: bool) -> int:
    """Return the tokens of a grid with its row ends, its start and end, and the padding of paired rows."""
    tokens = rows * (columns + 1) + _ENDS
    if paired:
        tokens += rows % 2 * (columns + 1) + (rows + 1) // 2 * (columns + 1) % 2 * 2
    return tokens


def fit_rows(width: int, height: int, shape: RowShape) -> tuple[int, int]:
    """Return (across, down) in patches; in the engine's floating point."""
    patch_size, downsample, _, min_pixels, max_ratio, paired = shape
    wide: float = width
    if max_ratio is not None and wide > height * max_ratio:
        wide = height * max_ratio
    if wide * height < min_pixels:
        ratio = (min_pixels / (wide * height)) ** 0.5
        wide, height = int(wide * ratio), int(height * ratio)
    across, down = math.ceil(wide / patch_size), math.ceil(height / patch_size)
    limit = budget = shape.limit
    while count_grid(-(-across // downsample), -(-down // downsample), paired=paired) > limit:
        across, down = _shrink(wide, height, shape, budget)
        budget -= 1
    return across, down


def _shrink(width: float, height: int, shape: RowShape, budget: int) -> tuple[int, int]:
    """Return (across, down) in patches of the image shrunk towards ``budget`` tokens.

    With c columns, rows of the image's aspect and row ends, c x (c + 1) x aspect tokens fit. V4's rows are even.
    """
    patch_size, downsample, _, _, _, paired = shape
    aspect = height / width
    columns = math.sqrt((budget - _ENDS) / aspect + 0.25) - 0.5
    rows = columns * aspect
    if columns < 1:
        most = (budget - _ENDS) // 2
        return downsample, (most - most % 2 if paired else most) * downsample
    if paired and rows < 2:
        return ((budget - _ENDS) // 2 - 1) * downsample, 2 * downsample
    if rows < 1:
        return (budget - _ENDS - 1) * downsample, downsample
    whole = math.floor(rows)
    cell = patch_size * downsample
    scale = min(math.floor(columns) * cell / width, (whole - whole % 2 if paired else whole) * cell / height)
    return math.floor(width * scale / patch_size), math.floor(height * scale / patch_size)


@lru_cache(maxsize=1024)
def _maximum(shape: RowShape) -> MaximumTokens:
    cell = shape.patch_size * shape.downsample
    dummy_size = _dummy_paired(shape) if shape.paired else _dummy(shape)
    dummy = _tokens(*fit_rows(*dummy_size, shape), shape)
    true_tokens, true_size = dummy.embed_tokens, dummy_size
    for most, columns, rows in sorted(_grids(shape), reverse=True):
        if most <= true_tokens:
            break
        size = (columns * cell, rows * cell)
        if size[0] * size[1] <= MAX_DECODED_PIXELS and _tokens(*fit_rows(*size, shape), shape).embed_tokens == most:
            true_tokens, true_size = most, size
    return MaximumTokens(
        true_tokens=true_tokens,
        true_size=true_size,
        engine_tokens=shape.max_tokens + _ALIGNMENT if shape.paired else shape.max_tokens,
        dummy_size=dummy_size,
        dummy_tokens=dummy.embed_tokens,
        dummy_patches=dummy.vit_patches,
    )


def _grids(shape: RowShape) -> Iterator[tuple[int, int, int]]:
    """Yield (embedding tokens, columns, rows) of the widest grids of each height within the limit.

    Padding can cost a column that the next narrower grid saves, and a shrunk image can be a patch wider than its
    aspect says; so a few widths of each height are tried.
    """
    for rows in range(1, shape.limit // 2):
        widest = (shape.limit - _ENDS) // rows - 1
        if shape.max_ratio is not None:
            widest = min(widest, math.ceil(shape.max_ratio * (rows + 1 / shape.downsample)) + 1)
        for columns in range(widest, max(0, widest - 5), -1):
            tokens = count_grid(columns, rows, paired=shape.paired)
            if tokens <= shape.limit:
                yield (columns * rows if shape.paired else tokens), columns, rows


def _dummy_paired(shape: RowShape) -> tuple[int, int]:
    """Return (width, height) of V4's dummy: the grid of the most embedding tokens, then of the most tokens.

    The search through the columns of a row count ends at the first that exceeds the limit.
    """
    best, most = (1, 1), (0, 0)
    for rows in range(1, shape.limit):
        if count_grid(1, rows, paired=True) > shape.limit:
            break
        for columns in range(1, shape.limit):
            tokens = count_grid(columns, rows, paired=True)
            if tokens > shape.limit or (shape.max_ratio is not None and columns > rows * shape.max_ratio):
                break
            if (rows * columns, tokens) > most:
                best, most = (columns, rows), (rows * columns, tokens)
    cell = shape.patch_size * shape.downsample
    return best[0] * cell, best[1] * cell


def _dummy(shape: RowShape) -> tuple[int, int]:
    """Return (width, height) of V4.1's dummy: the grid of the most patches, doubled until it is not enlarged."""
    across = down = 0
    for rows in range(1, (shape.limit - _ENDS) // 2 + 1):
        high = rows * shape.downsample
        wide = ((shape.limit - _ENDS) // rows - 1) * shape.downsample
        if shape.max_ratio is not None:
            wide = min(wide, math.ceil(high * shape.max_ratio))
        if high * wide > across * down:
            across, down = wide, high
    times = 1
    while across * down * (shape.patch_size * times) ** 2 < shape.min_pixels:
        times *= 2
    return across * shape.patch_size * times, down * shape.patch_size * times
