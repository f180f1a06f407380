"""What a counting rule takes and returns. Every rule module and every caller speaks these types."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Server flags that change how images are processed; empty mappings mean the shipped settings.

    ``max_model_len`` matters to the few rules that give an image what the context leaves; None is the checkpoint's own.
    """

    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    config_format: Literal["auto", "mistral"] = "auto"
    max_model_len: int | None = None


class ImageTokens(NamedTuple):
    """The tokens of one image.

    Attributes:
        embed_tokens: Embedding slots; what counts against the encoder budget and cache.
        placeholder_length: The whole placeholder range, row breaks and tags inside it included.
        prompt_tokens: Everything that the image adds to the prompt.
        vit_patches: Patches through the vision tower.
        resized: (width, height) that the tower sees, where the rule resizes the image as a whole.
        tiles: Views through the tower, where the rule cuts tiles (thumbnail or overview included).
        grid: (columns, rows) of tiles, or of tokens where there is one view.
    """

    embed_tokens: int
    placeholder_length: int
    prompt_tokens: int
    vit_patches: int
    resized: tuple[int, int] | None = None
    tiles: int | None = None
    grid: tuple[int, int] | None = None


def image_tokens(
    embed_tokens: int,
    placeholder_length: int,
    prompt_tokens: int,
    vit_patches: int,
    resized: tuple[int, int] | None = None,
    tiles: int | None = None,
    grid: tuple[int, int] | None = None,
) -> ImageTokens:
    """Return the ``ImageTokens`` of these values in half the time that calling the class takes."""
    fields = (embed_tokens, placeholder_length, prompt_tokens, vit_patches, resized, tiles, grid)
    return tuple.__new__(ImageTokens, fields)


def grid_tokens(
    columns: int, rows: int, unit: int, merge_size: int, *, inside: int = 0, around: int = 0
) -> ImageTokens:
    """Return the tokens of one view of ``columns`` x ``rows`` squares, each a token.

    Args:
        columns: Squares in a row.
        rows: Rows.
        unit: Side of a square in pixels.
        merge_size: Patches of the tower along the side of a square.
        inside: Other tokens in the placeholder range.
        around: Other tokens that the image adds to the prompt outside of it.
    """
    tokens = columns * rows
    length = tokens + inside
    return image_tokens(
        tokens,
        length,
        length + around,
        tokens * merge_size**2,
        (columns * unit, rows * unit),
        None,
        (columns, rows),
    )


@dataclass(frozen=True, slots=True)
class Part:
    """One term of the sum that makes an image's prompt tokens: ``count`` things of ``tokens`` tokens each.

    ``embedded`` tells whether the tokens are embedding slots; separators and tags mostly are not.
    """

    label: str
    count: int
    tokens: int
    embedded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRefusal:
    """Why there is no count: a CamelCase reason and a message with thing, value, limit and what works."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaximumTokens:
    """The largest image under the current settings.

    Attributes:
        true_tokens: The most embedding tokens that any accepted image takes.
        true_size: (width, height) of an image that takes them.
        engine_tokens: What the engine computes as its maximum; it sizes the encoder budget.
        dummy_size: (width, height) of the image that the engine profiles with.
        dummy_tokens: What that dummy image really takes.
        dummy_patches: Patches of the dummy image.
    """

    true_tokens: int
    true_size: tuple[int, int]
    engine_tokens: int
    dummy_size: tuple[int, int]
    dummy_tokens: int
    dummy_patches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """The family's lever on the size of an image: a server setting that caps pixels and tokens alike.

    Attributes:
        name: The setting as the engine spells it.
        value: Its value under the rule's settings.
        tighter: Values below ``value``, ascending, that the engine honours in pixels and count.
        monotone: Whether a larger value never keeps less of an image, in pixels or tokens, than a smaller one does.
            What a small value adds to a thin image beyond what ``value`` keeps does not count.
    """

    name: str
    value: int
    tighter: Sequence[int]
    monotone: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRule(ABC):
    """A counting rule bound to one model and one set of server settings. Immutable.

    Attributes:
        ignored_settings: Settings that the engine accepts and then disregards; the counts are those without them.
        hint_lowers_budget: Whether a width/height hint lowers the engine's budget: its maximum is that of a dummy
            image, not a figure of its own.
        follows_context: Whether an image's tokens depend on ``settings.max_model_len``.
    """

    settings: ServerSettings
    model_id: str
    ignored_settings: tuple[str, ...] = ()
    hint_lowers_budget: ClassVar[bool] = True
    follows_context: ClassVar[bool] = False

    @abstractmethod
    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""

    def count_images(self, sizes: Iterable[tuple[int, int]]) -> list[ImageTokens | TokenRefusal]:
        """Count the images of ``sizes``, each (width, height)."""
        count = self.count_image
        return [count(width, height) for width, height in sizes]

    @abstractmethod
    def maximum(self) -> MaximumTokens:
        """Return the largest image under these settings."""

    @abstractmethod
    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the terms whose sum is ``tokens.prompt_tokens``; the embedded ones sum to ``embed_tokens``."""

    @property
    def cap(self) -> Cap | None:
        """The setting that caps images, None where the family has none that works."""
        return None

    def with_cap(self, value: int) -> "ImageRule":
        """Return the rule, settings included, with the cap at ``value`` (one of ``cap.tighter``)."""
        raise NotImplementedError(f"{type(self).__name__} has no cap")

    def kept_pixels(self, width: int, height: int) -> int:
        """Return how many pixels of detail the tower sees of an accepted image, an overview not counted."""
        raise NotImplementedError(f"{type(self).__name__} has no cap")
