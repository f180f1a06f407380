"""From an architecture and its ``config.json`` to a shape, or the reason why there is none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.sizing.shape import vision as towers
from vlm_operator.sizing.shape.text import read_text, text_model_type
from vlm_operator.sizing.shape.types import ModelShape, ShapeRefusal, VisionShape

_Reader = Callable[[Mapping[str, Any], int], VisionShape]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    read_vision: _Reader
    data_parallel: bool = False
    prefix_lm: bool = False
    deepstack: bool = False


def _vision(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("vision_config")
    return found if isinstance(found, Mapping) else {}


ARCHITECTURES: Final[Mapping[str, _Family]] = {
    "Qwen2VLForConditionalGeneration": _Family(
        read_vision=lambda c, h: towers.read_qwen2_vl(_vision(c), h), data_parallel=True
    ),
    "Qwen2_5_VLForConditionalGeneration": _Family(
        read_vision=lambda c, h: towers.read_qwen2_5_vl(_vision(c), h), data_parallel=True
    ),
    "Qwen3VLForConditionalGeneration": _Family(
        read_vision=lambda c, h: towers.read_qwen3_vl(_vision(c), h), data_parallel=True, deepstack=True
    ),
    "LlavaForConditionalGeneration": _Family(
        read_vision=lambda c, h: towers.read_clip(_vision(c), h, int(c.get("vision_feature_layer", -2)))
    ),
    "InternVLChatModel": _Family(
        read_vision=lambda c, h: towers.read_internvl(_vision(c), h, float(c.get("downsample_ratio", 0.5))),
        data_parallel=True,
    ),
    "Gemma3ForConditionalGeneration": _Family(
        read_vision=lambda c, h: towers.read_gemma3(_vision(c), h), prefix_lm=True
    ),
    "Mistral3ForConditionalGeneration": _Family(
        read_vision=lambda c, h: towers.read_pixtral(_vision(c), h, int(c.get("spatial_merge_size", 2)))
    ),
    "MiniCPMV": _Family(
        read_vision=lambda c, h: towers.read_minicpm(_vision(c), h, int(c.get("query_num", 64)), str(c.get("version"))),
        data_parallel=True,
    ),
}
"""Architectures whose shapes are known, with what the engine can do with their towers (fact sheet 6.2)."""

TEXT_MODELS: Final = frozenset(
    {
        "llama",
        "mistral",
        "qwen2",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3",
        "qwen3_vl_text",
        "gemma3_text",
        "internlm2",
    }
)
"""Dense language models with grouped-query attention that the formulas cover."""

TOWERS: Final[Mapping[str, frozenset[str]]] = {
    "LlavaForConditionalGeneration": frozenset({"clip_vision_model"}),
    "Mistral3ForConditionalGeneration": frozenset({"pixtral"}),
}
"""Towers that a generic architecture may carry; any other one would be counted wrongly."""

MINICPM_VERSIONS: Final = frozenset({"2.6", "4.5"})


def read_shape(architecture: str, config: Mapping[str, Any]) -> ModelShape | ShapeRefusal:
    """Return the shape of the checkpoint with this ``config.json``, or why it cannot be sized."""
    family = ARCHITECTURES.get(architecture)
    refused = _refuse(architecture, config)
    if family is None or refused is not None:
        return refused or _unknown(architecture)
    dtype = _dtype(config)
    try:
        text = read_text(config, 2)
        tower = family.read_vision(config, text.hidden)
    except (KeyError, TypeError, ValueError) as error:
        return ShapeRefusal(
            reason="IncompleteConfig",
            message=f"the config.json of {architecture} lacks or garbles {error}; use the model's own",
        )
    levels = len(_vision(config).get("deepstack_visual_indexes") or ()) if family.deepstack else 0
    return ModelShape(
        architecture=architecture,
        text=text,
        vision=tower,
        prefix_lm=family.prefix_lm,
        deepstack_levels=levels,
        supports_encoder_data_parallel=family.data_parallel,
        dtype=dtype,
    )


def _refuse(architecture: str, config: Mapping[str, Any]) -> ShapeRefusal | None:
    if architecture not in ARCHITECTURES:
        return _unknown(architecture)
    parts = (config, config.get("text_config") or {}, config.get("llm_config") or {})
    method = next((part["quantization_config"] for part in parts if part.get("quantization_config")), None)
    if method is not None:
        name = method.get("quant_method", "unknown") if isinstance(method, Mapping) else str(method)
        return ShapeRefusal(
            reason="QuantisedCheckpoint",
            message=f"the checkpoint is quantised ({name}), which cannot be sized yet; use its BF16 original",
        )
    model_type = text_model_type(config)
    if model_type not in TEXT_MODELS:
        return ShapeRefusal(
            reason="UnknownArchitecture",
            message=f"the language model {model_type!r} of {architecture} cannot be sized; "
            f"known are {', '.join(sorted(TEXT_MODELS))}",
        )
    return _refuse_tower(architecture, config)


def _refuse_tower(architecture: str, config: Mapping[str, Any]) -> ShapeRefusal | None:
    tower = str(_vision(config).get("model_type", ""))
    known = TOWERS.get(architecture)
    if known and tower not in known:
        return ShapeRefusal(
            reason="UnknownArchitecture",
            message=f"the vision tower {tower!r} of {architecture} cannot be sized; known: {', '.join(sorted(known))}",
        )
    version = str(config.get("version"))
    if architecture == "MiniCPMV" and version not in MINICPM_VERSIONS:
        return ShapeRefusal(
            reason="UnknownArchitecture",
            message=f"MiniCPM-V {version} cannot be sized; known: {', '.join(sorted(MINICPM_VERSIONS))}",
        )
    return None


def _unknown(architecture: str) -> ShapeRefusal:
    return ShapeRefusal(
        reason="UnknownArchitecture",
        message=f"{architecture} cannot be sized; known are {', '.join(sorted(ARCHITECTURES))}",
    )


def _dtype(config: Mapping[str, Any]) -> str:
    """Return the element type; a file that names none, or float32, is served as bfloat16."""
    text = config.get("text_config") or config.get("llm_config") or {}
    named = config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or text.get("torch_dtype")
    return "float16" if named in ("float16", "half") else "bfloat16"
