"""One number for every image: the families that resize to one size whatever the image.

======================  ===============================================  ==========================================
family                  embedding tokens                                 around them
======================  ===============================================  ==========================================
PaliGemma, ColPali      (image size / patch size) squared                one token at the end of the placeholder
Gemma-3n                256, the tower's grid whatever the pixels        start, end and two line breaks
Aria                    the most queries that the projector has          start and end, outside the placeholder
BLIP-2                  ``num_query_tokens``                             nothing
GLM-4V                  (image size / patch size / 2) squared + 2        nothing: start and end are embedded
OpenVLA                 (image size / 14) squared                        nothing
CLIP, SigLIP            1, pooled (the pooler that the engine takes)     nothing
Nemotron-Parse          height x (width // 4) patches + 1                nothing: they stay in the encoder
======================  ===============================================  ==========================================

The tower has one position for each patch of that one size, so settings that change the pixels alone break requests.
Source: the engine's processing information for each family, and the image processors of ``transformers``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.fixed import Fixed
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, Part

_GEMMA3N_TOKENS: Final = 256
_GEMMA3N_SIDE: Final = 224
"""Side of the engine's dummy where the processor's file names none."""
_ARIA_PATCH_SIZE: Final = 14
_ARIA_SIDES: Final = (490, 980)
"""What AriaImageProcessor accepts: 35 and 70 patches of its tower."""
_ARIA_DUMMY_SIDE: Final = 224
"""Default ``image_size`` of the tower's configuration class, from which the engine takes its dummy."""
_OPENVLA_SIDE: Final = 224
_OPENVLA_PATCH_SIZE: Final = 14
_OPENVLA_ONLY: Final[Mapping[str, Any]] = {
    "image_sizes": [_OPENVLA_SIDE, _OPENVLA_SIDE],
    "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
    "timm_override_act_layers": [None, None],
    "use_fused_vision_backbone": True,
}
_NECK_STRIDE: Final = 4
"""Nemotron-Parse joins so many patches of a row into one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFixed(Fixed):
    """One number of tokens that the decoder reads through cross-attention; the prompt has none for the image."""

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the one number, which is embedded outside the prompt."""
        return (Part("image, outside the prompt", tokens.embed_tokens, 1),)


def build_paligemma(source: reading.Source) -> ImageRule:
    """Bind PaliGemma's rule."""
    return _build_paligemma(source, ("vision_config",))


def build_colpali(source: reading.Source) -> ImageRule:
    """Bind ColPali's rule: PaliGemma's, whose configuration its own may hold as ``vlm_config``."""
    return _build_paligemma(source, ("vision_config", "vlm_config.vision_config"))


def _build_paligemma(source: reading.Source, sections: Sequence[str]) -> ImageRule:
    image_size, patches = _read_tower(source, sections, resized_by="size")
    return _bind(
        source,
        ImageTokens(
            embed_tokens=patches,
            # The engine puts the start of the sequence behind the image and counts it to the placeholder.
            placeholder_length=patches + 1,
            prompt_tokens=patches,
            vit_patches=patches,
            resized=(image_size, image_size),
        ),
        (image_size, image_size),
    )


def build_gemma3n(source: reading.Source) -> ImageRule:
    """Bind Gemma-3n's rule: its convolutional tower ends in 16 x 16 positions whatever the size of the pixels."""
    name, files = source.model_id, source.processor
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"size", "image_seq_length"})
    for document, key in ((files, "image_seq_length"), (source.config, "vision_soft_tokens_per_image")):
        tokens = reading.first_int(name, (document, key), default=_GEMMA3N_TOKENS)
        if tokens != _GEMMA3N_TOKENS:
            raise reading.Refused(
                "SettingMismatch",
                f"{key} of {name or 'this Gemma-3n'} is {tokens}, but its tower makes {_GEMMA3N_TOKENS} features of "
                "an image, and requests would fail; drop the override",
            )
    shipped = _read_size("size", files.get("size", _GEMMA3N_SIDE))
    return _bind(
        source,
        ImageTokens(
            embed_tokens=_GEMMA3N_TOKENS,
            placeholder_length=_GEMMA3N_TOKENS + 4,
            prompt_tokens=_GEMMA3N_TOKENS + 4,
            vit_patches=_GEMMA3N_TOKENS,
            resized=_read_size("size", given["size"]) if given.get("size") else shipped,
            tiles=1,
        ),
        shipped,
        ignored_settings=reading.dotted(source.settings.mm_processor_kwargs, "mm_processor_kwargs."),
    )


def build_aria(source: reading.Source) -> ImageRule:
    """Bind Aria's rule: the prompt takes the most queries of the projector, so the pixels have to match them."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"max_image_size", "split_image"})
    name, files = source.model_id or "this Aria", source.processor
    if reading.boolean("split_image", given.get("split_image", files.get("split_image"))):
        raise reading.Refused(
            "StartupFails",
            f"split_image is true, but the engine hands one crop of an image on to {name}, and the images that are cut "
            "into several fail; set it to false",
        )
    side = reading.first_int(name, (given, "max_image_size"), (files, "max_image_size"), default=_ARIA_SIDES[-1])
    if side not in _ARIA_SIDES:
        raise reading.Refused(
            "StartupFails",
            f"max_image_size is {side}, but the image processor of {name} takes {_ARIA_SIDES[0]} or {_ARIA_SIDES[1]} "
            "only, and the server would not start; correct or drop it",
        )
    queries = _read_queries(source)
    tokens, patches = max(queries.values()), (side // _ARIA_PATCH_SIZE) ** 2
    if queries.get(patches) != tokens:
        raise reading.Refused(
            "SettingMismatch",
            f"max_image_size is {side}: {name} makes {queries.get(patches, 'no')} features of its {patches:,} patches, "
            f"but the prompt takes {tokens} tokens, and requests would fail; drop the override",
        )
    dummy = reading.first_int(name, (source.config, "vision_config.image_size"), default=_ARIA_DUMMY_SIDE)
    return _bind(
        source,
        ImageTokens(
            embed_tokens=tokens,
            placeholder_length=tokens,
            prompt_tokens=tokens + 2,
            vit_patches=patches,
            resized=(side, side),
            tiles=1,
        ),
        (dummy, dummy),
    )


def _read_queries(source: reading.Source) -> Mapping[int, int]:
    """Return the projector's queries for each number of patches."""
    key = "projector_patch_to_query_dict"
    value = source.config.get(key)
    if not isinstance(value, Mapping) or not value:
        raise reading.Refused(
            "MissingProcessorValue",
            f"{source.model_id or 'this Aria'}: its configuration lacks {key}, without which images cannot be counted; "
            "take config.json from the checkpoint",
        )
    read = {str(patches): reading.positive_int(f"{key}.{patches}", queries) for patches, queries in value.items()}
    return {int(patches): queries for patches, queries in read.items() if patches.isdecimal()}


def build_blip2(source: reading.Source) -> ImageRule:
    """Bind BLIP-2's rule; what the files leave out is the default of its configuration classes."""
    image_size, patches = _read_tower(source, ("vision_config",), resized_by="size", defaults=(224, 14))
    tokens = reading.first_int(source.model_id, (source.config, "num_query_tokens"), default=32)
    return _bind(source, _plain(tokens, patches, (image_size, image_size)), (image_size, image_size))


def build_glm4v(source: reading.Source) -> ImageRule:
    """Bind GLM-4V's rule: patches two by two, and a start and an end that the tower embeds."""
    image_size, patches = _read_tower(source, ("vision_config",), resized_by="size")
    patch_size = reading.first_int(source.model_id, (source.config, "vision_config.patch_size"))
    tokens = (image_size // patch_size // 2) ** 2 + 2
    return _bind(source, _plain(tokens, patches, (image_size, image_size)), (image_size, image_size))


def build_openvla(source: reading.Source) -> ImageRule:
    """Bind OpenVLA's rule. Both of its towers see the same patches; the engine serves one make of it."""
    reading.refuse_unknown(source.settings.mm_processor_kwargs, ())
    for key, only in _OPENVLA_ONLY.items():
        value = source.config.get(key)
        if value not in (None, [], only):
            raise reading.Refused(
                "StartupFails",
                f"{key} of {source.model_id or 'this OpenVLA'} is {value!r}, but the engine serves {only!r} only and "
                "would not start; use a checkpoint of that make",
            )
    patches = (_OPENVLA_SIDE // _OPENVLA_PATCH_SIZE) ** 2
    size = _OPENVLA_SIDE, _OPENVLA_SIDE
    return _bind(source, _plain(patches, patches, size), size)


def build_clip(source: reading.Source) -> ImageRule:
    """Bind CLIP's rule, for the pooler that the engine takes on its own: one embedding of an image."""
    image_size, patches = _read_tower(source, ("vision_config",), resized_by="crop_size", defaults=(224, 32))
    patch_size = reading.first_int(source.model_id, (source.config, "vision_config.patch_size"), default=32)
    if image_size % patch_size:
        raise reading.Refused(
            "StartupFails",
            f"image_size of {source.model_id or 'this CLIP'} is {image_size}, which is no multiple of its patches of "
            f"{patch_size} pixels, and the engine would not start; correct it",
        )
    return _bind(source, _plain(1, patches, (image_size, image_size)), (image_size, image_size))


def build_siglip(source: reading.Source) -> ImageRule:
    """Bind SigLIP's rule, for the pooler that the engine takes on its own: one embedding of an image."""
    image_size, patches = _read_tower(source, ("vision_config",), resized_by="size", defaults=(224, 16))
    return _bind(source, _plain(1, patches, (image_size, image_size)), (image_size, image_size))


def build_nemotron_parse(source: reading.Source) -> ImageRule:
    """Bind Nemotron-Parse's rule: a page is fitted into ``image_size`` (height, width) and padded to it."""
    reading.refuse_unknown(source.settings.mm_processor_kwargs, ())
    name = source.model_id
    height, width = _read_sides("image_size", source.config.get("image_size"))
    final = source.processor.get("final_size")
    if final is not None and _read_sides("final_size", final) != (height, width):
        raise reading.Refused(
            "SettingMismatch",
            f"image_size of {name or 'this Nemotron-Parse'} is {height} x {width}, but its processor pads to "
            f"{final!r}, and requests would fail; drop the override",
        )
    patch_size = reading.first_int(name, (source.config, "encoder.patch_size"))
    rows, columns = (reading.divide("encoder.patch_size", side, patch_size) for side in (height, width))
    tokens = rows * (columns // _NECK_STRIDE) + 1
    return EncoderFixed(
        settings=source.settings,
        model_id=name,
        tokens=ImageTokens(
            embed_tokens=tokens,
            placeholder_length=tokens,
            prompt_tokens=0,
            vit_patches=rows * columns,
            resized=(width, height),
        ),
        # The engine takes the height for the width when it draws its dummy.
        dummy_size=(height, width),
    )


def _read_tower(
    source: reading.Source,
    sections: Sequence[str],
    *,
    resized_by: str,
    defaults: tuple[int | None, int | None] = (None, None),
) -> tuple[int, int]:
    """Return the side in pixels of the square that the tower sees, and the patches of it.

    Args:
        source: The model.
        sections: Dotted paths of the configuration's section with ``image_size`` and ``patch_size``.
        resized_by: What the processor calls that size: the only setting that is known, and it must not differ.
        defaults: Image size and patch size where the configuration leaves them out.
    """
    name, config = source.model_id, source.config
    image_size, patch_size = (
        reading.first_int(name, *((config, f"{section}.{key}") for section in sections), default=default)
        for key, default in zip(("image_size", "patch_size"), defaults, strict=True)
    )
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {resized_by})
    for document in (source.processor, given):
        value = document.get(resized_by)
        if value is not None and _read_size(resized_by, value) != (image_size, image_size):
            raise reading.Refused(
                "SettingMismatch",
                f"{resized_by} is {value!r}, but the tower of {name or 'this model'} counts the patches of "
                f"{image_size} x {image_size} pixels (image_size): requests would fail; drop the override",
            )
    return image_size, reading.divide("patch_size", image_size, patch_size) ** 2


def _read_size(key: str, value: Any) -> tuple[int, int]:
    """Return (width, height) of a processor's size: one side for both, or an object of the two."""
    if not isinstance(value, Mapping):
        side = reading.positive_int(key, value)
        return side, side
    return (
        reading.positive_int(f"{key}.width", value.get("width")),
        reading.positive_int(f"{key}.height", value.get("height")),
    )


def _read_sides(key: str, value: Any) -> tuple[int, int]:
    """Return both numbers of a list of two."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise reading.Refused("InvalidSetting", f"{key} is {value!r}, but must be two whole numbers; correct it")
    return reading.positive_int(key, value[0]), reading.positive_int(key, value[1])


def _plain(tokens: int, patches: int, resized: tuple[int, int]) -> ImageTokens:
    """Return the count of an image that adds nothing but its tokens."""
    return ImageTokens(
        embed_tokens=tokens, placeholder_length=tokens, prompt_tokens=tokens, vit_patches=patches, resized=resized
    )


def _bind(
    source: reading.Source, tokens: ImageTokens, dummy_size: tuple[int, int], ignored_settings: Iterable[str] = ()
) -> Fixed:
    return Fixed(
        settings=source.settings,
        model_id=source.model_id,
        tokens=tokens,
        dummy_size=dummy_size,
        ignored_settings=tuple(ignored_settings),
    )
