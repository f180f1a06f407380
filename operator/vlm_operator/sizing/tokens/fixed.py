"""One number for every image, and LLaVA-1.5, which takes it.

The image is resized to a square of ``image_size`` pixels. Features = (image size / patch size) squared, and the class
patch of a CLIP tower. The ``default`` feature selection drops the first feature, whatever it is; ``full`` keeps all.
Source: image processors of ``transformers`` and the LLaVA processing information of the engine.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.longest_edge import build_llava_pixtral
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal

_RESIZED_BY: Final = {"clip_vision_model": "crop_size", "siglip_vision_model": "size"}
"""What the processor of each tower calls the size of the square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(ImageRule):
    """The rule bound to one model. No setting caps images, and no hint lowers the budget.

    Attributes:
        dummy_size: (width, height) of the image that the engine profiles with.
        tokens: The count of any image.
    """

    hint_lowers_budget: ClassVar[bool] = False
    dummy_size: tuple[int, int]
    tokens: ImageTokens

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return check_size(width, height) or self.tokens

    def maximum(self) -> MaximumTokens:
        """Return the one count there is."""
        return MaximumTokens(
            true_tokens=self.tokens.embed_tokens,
            true_size=self.dummy_size,
            engine_tokens=self.tokens.embed_tokens,
            dummy_size=self.dummy_size,
            dummy_tokens=self.tokens.embed_tokens,
            dummy_patches=self.tokens.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the one number and what stands around it."""
        rest = tokens.prompt_tokens - tokens.embed_tokens
        return Part("image", tokens.embed_tokens, 1), Part("tags", rest, 1, embedded=False)


def build_llava(source: reading.Source) -> ImageRule:
    """Bind LLaVA's rule: one count for a CLIP or a SigLIP tower, Pixtral's grid for a Pixtral tower."""
    kind = reading.find(source.config, "vision_config.model_type")
    if kind == "pixtral":
        return build_llava_pixtral(source)
    if kind not in _RESIZED_BY:
        raise reading.Refused(
            "UnsupportedVisionTower",
            f"{source.model_id or 'the model'}: LLaVA with a vision tower of type {kind!r} cannot be counted; "
            f"{', '.join(_RESIZED_BY)} and pixtral can",
        )
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_changed(given, source.processor, "this family takes the same tokens for every image; drop it")
    image_size = reading.first_int(source.model_id, (source.config, "vision_config.image_size"))
    patch_size = reading.first_int(source.model_id, (source.config, "vision_config.patch_size"))
    key = _RESIZED_BY[kind]
    pixels = reading.find(source.processor, f"{key}.height") or reading.find(source.processor, key)
    if pixels is not None and pixels != image_size:
        raise reading.Refused(
            "SettingMismatch",
            f"vision_config.image_size is {image_size}, but {key} of the processor is {pixels}: pixels and token count "
            "would disagree and requests would fail; drop the override",
        )
    strategy = source.config.get("vision_feature_select_strategy", "default")
    if strategy not in ("default", "full"):
        raise reading.Refused(
            "InvalidSetting",
            f"vision_feature_select_strategy is {strategy!r}; the engine knows default and full",
        )
    reading.divide("vision_config.patch_size", image_size, patch_size)
    selected = int(kind == "clip_vision_model") - int(strategy == "default")
    tokens = fixed_tokens(image_size, patch_size, selected)
    return Fixed(settings=source.settings, model_id=source.model_id, dummy_size=(image_size, image_size), tokens=tokens)


def fixed_tokens(image_size: int, patch_size: int, others: int) -> ImageTokens:
    """Return the count of (``image_size`` / ``patch_size``) squared patches and ``others`` more; -1 drops one."""
    patches = (image_size // patch_size) ** 2
    total = patches + others
    return ImageTokens(
        embed_tokens=total,
        placeholder_length=total,
        prompt_tokens=total,
        vit_patches=patches,
        resized=(image_size, image_size),
    )
