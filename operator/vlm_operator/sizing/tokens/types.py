"""What a counting rule takes and returns. Every rule module and every caller speaks these types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Server flags that change how images are processed; empty mappings mean the shipped settings."""

    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    config_format: Literal["auto", "mistral"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTokens:
    """The tokens of one image.

    Attributes:
        embed_tokens: Embedding slots; what counts against the encoder budget and cache.
        placeholder_length: The whole placeholder range, row breaks and tags inside it included.
        prompt_tokens: Everything that the image adds to the prompt.
        vit_patches: Patches through the vision tower.
        resized: (width, height) that the tower sees, where the rule resizes the image as a whole.
        tiles: Number of tiles through the tower, where the rule cuts tiles (thumbnail included).
    """

    embed_tokens: int
    placeholder_length: int
    prompt_tokens: int
    vit_patches: int
    resized: tuple[int, int] | None = None
    tiles: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRefusal:
    """Why there is no count: a CamelCase reason and a message with thing, value, limit and what works."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaximumTokens:
    """The largest image under the current settings.

    ``true_tokens`` is the most embedding tokens that any accepted image can take; ``engine_tokens`` is what
    the engine computes as its maximum (it sizes the encoder budget); ``dummy_size`` is the (width, height) it
    profiles with, and ``dummy_tokens``/``dummy_patches`` what that dummy image really takes.
    """

    true_tokens: int
    engine_tokens: int
    dummy_size: tuple[int, int]
    dummy_tokens: int
    dummy_patches: int


class ImageRule(Protocol):
    """A counting rule bound to one model and one set of server settings. Immutable."""

    @property
    def settings(self) -> ServerSettings:
        """The settings that this rule was bound with."""
        ...

    @property
    def hint_lowers_budget(self) -> bool:
        """Whether a width/height hint lowers the engine's budget: its maximum is that of a dummy image."""
        ...

    @property
    def cap_name(self) -> str | None:
        """The family's lever on the size of an image as the engine spells it, None where it has none."""
        ...

    @property
    def cap_value(self) -> int | None:
        """The lever's value under these settings, None where the family has none."""
        ...

    @property
    def ignored_settings(self) -> tuple[str, ...]:
        """Settings that the engine accepts and then disregards; the counts are those without them."""
        ...

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        ...

    def maximum(self) -> MaximumTokens:
        """Return the largest image under these settings."""
        ...

    def tightest_cap(self, sizes: Sequence[tuple[int, int]], min_pixels: int | None) -> ServerSettings | None:
        """Return the tightest settings that keep at least ``min_pixels`` of each image of ``sizes``.

        ``min_pixels`` None keeps every listed image as large as it is under the shipped settings. None comes
        back where the family has no setting that caps (a fixed size, or settings that the engine ignores).
        """
        ...
