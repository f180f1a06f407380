"""BAGEL: the square of ``vit_max_num_patch_per_side`` tokens, whatever the image.

The engine puts that many placeholders for every image, and the tower gives one embedding per patch of the square that
the processor resizes to, so the two must be equal. Source: the engine's model and processing information.
"""

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.fixed import Fixed
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens

_PATCHES_PER_SIDE = 70
"""Default of the engine's configuration class."""


def build_bagel(source: reading.Source) -> ImageRule:
    """Bind BAGEL's rule.

    Raises:
        Refused: Pixels and placeholders would disagree, or a setting would make them.
    """
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_changed(given, source.processor, "this family takes the same tokens for every image; drop it")
    name, config = source.model_id, source.config
    side = reading.first_int(name, (config, "vit_max_num_patch_per_side"), default=_PATCHES_PER_SIDE)
    image_size = reading.first_int(name, (config, "vit_config.image_size"))
    patch_size = reading.first_int(name, (config, "vit_config.patch_size"))
    sides = [reading.first_int(name, (source.processor, f"size.{key}")) for key in ("height", "width")]
    if sides != [image_size, image_size] or image_size // patch_size != side:
        raise reading.Refused(
            "SettingMismatch",
            f"{name or 'this model'}: images of {sides[1]}x{sides[0]} pixels in patches of {patch_size} do not make "
            f"the {side}x{side} placeholders of vit_max_num_patch_per_side, and requests would fail; take all of them "
            "from the checkpoint",
        )
    return Fixed(
        settings=source.settings,
        model_id=name,
        dummy_size=(image_size, image_size),
        tokens=ImageTokens(
            embed_tokens=side**2,
            placeholder_length=side**2,
            prompt_tokens=side**2,
            vit_patches=side**2,
            resized=(image_size, image_size),
        ),
    )
