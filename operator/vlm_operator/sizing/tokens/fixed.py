"""One number for every image: LLaVA-1.5.

The image is resized and cropped to a square of ``image_size`` pixels. Tokens = (image size / patch size)
squared; the class patch of a CLIP tower is dropped by the ``default`` feature selection and kept by ``full``.
Source: CLIP processor of ``transformers`` and the LLaVA processing information of the engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageTokens, MaximumTokens, ServerSettings, TokenRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The rule bound to one model; ``tokens`` holds the count of any image."""

    settings: ServerSettings
    model_id: str
    image_size: int
    tokens: ImageTokens
    ignored_settings: tuple[str, ...] = ()

    @property
    def hint_lowers_budget(self) -> bool:
        """Yes in name: the maximum comes from a dummy image, though every image takes the same."""
        return True

    @property
    def cap_name(self) -> None:
        """Return None: there is no lever."""
        return

    @property
    def cap_value(self) -> None:
        """Return None: there is no lever."""
        return

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return check_size(width, height) or self.tokens

    def maximum(self) -> MaximumTokens:
        """Return the one count there is."""
        return MaximumTokens(
            true_tokens=self.tokens.embed_tokens,
            engine_tokens=self.tokens.embed_tokens,
            dummy_size=(self.image_size, self.image_size),
            dummy_tokens=self.tokens.embed_tokens,
            dummy_patches=self.tokens.vit_patches,
        )

    def tightest_cap(self, sizes: Sequence[tuple[int, int]], min_pixels: int | None) -> ServerSettings | None:
        """Return None: every image takes the same."""
        del sizes, min_pixels
        return None


def fixed_tokens(image_size: int, patch_size: int, class_tokens: int) -> ImageTokens:
    """Return the count of (``image_size`` / ``patch_size``) squared patches and ``class_tokens`` kept."""
    patches = (image_size // patch_size) ** 2
    total = patches + class_tokens
    return ImageTokens(
        embed_tokens=total,
        placeholder_length=total,
        prompt_tokens=total,
        vit_patches=patches,
        resized=(image_size, image_size),
    )
