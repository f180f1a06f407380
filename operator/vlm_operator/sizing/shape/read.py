"""From an architecture and its ``config.json`` to a shape, or the reason why there is none."""

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_operator.sizing.shape.quantisation import apply_quantisation, read_quantisation
from vlm_operator.sizing.shape.text import FAMILIES, find_text_config, read_text, text_model_type
from vlm_operator.sizing.shape.types import ModelShape, ShapeRefusal, TextShape, VisionShape
from vlm_operator.sizing.shape.unsized import UNSIZED
from vlm_operator.sizing.shape.vision import (
    aria,
    eva,
    gemma3n,
    moondream,
    omni,
    others,
    perception,
    queries,
    qwen,
    remote,
    siglip,
    siglip_families,
)
from vlm_operator.sizing.shape.vision.parts import vision_config

_Reader = Callable[[Mapping[str, Any], int], VisionShape]
_LLAVA_TOWERS: Final = frozenset({"clip_vision_model", "siglip_vision_model"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """How to read one architecture.

    Attributes:
        data_parallel: Whether ``--mm-encoder-tp-mode data`` works (fact sheet 6.2).
        towers: Towers that may stand under a generic architecture; empty where it has but one.
        wide_rotary: Whether the tower rotates queries and keys in float32 (``ApplyRotaryEmb``,
            ``enable_fp32_compute``).
    """

    read_vision: _Reader
    data_parallel: bool = False
    prefix_lm: bool = False
    deepstack: bool = False
    towers: frozenset[str] = frozenset()
    wide_rotary: bool = False


_QWEN3 = _Family(read_vision=qwen.read_qwen3_vl, data_parallel=True, deepstack=True)
_QWEN3_5 = _Family(read_vision=qwen.read_qwen3_vl, data_parallel=True)
_IDEFICS3 = _Family(read_vision=siglip.read_idefics3)
_DEEPSEEK_OCR = _Family(read_vision=others.read_deepseek_ocr)
_MOONDREAM3 = _Family(read_vision=moondream.read_moondream3)
_NEMOTRON_H = _Family(read_vision=remote.read_nemotron_nano)
_OVIS2_5 = _Family(read_vision=remote.read_ovis2_5)
_QWEN2_5_OMNI = _Family(read_vision=omni.read_qwen2_5_omni)
_MINICPM4_6 = _Family(read_vision=remote.read_minicpm4_6, data_parallel=True)
_KIMI = _Family(read_vision=qwen.read_moonvit, data_parallel=True)

ARCHITECTURES: Final[Mapping[str, _Family]] = {
    "Qwen2VLForConditionalGeneration": _Family(read_vision=qwen.read_qwen2_vl, data_parallel=True),
    "Qwen2_5_VLForConditionalGeneration": _Family(read_vision=qwen.read_qwen2_5_vl, data_parallel=True),
    "Qwen3VLForConditionalGeneration": _QWEN3,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3,
    "Qwen3_5ForConditionalGeneration": _QWEN3_5,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3_5,
    "LlavaForConditionalGeneration": _Family(
        read_vision=siglip.read_llava, towers=frozenset({*_LLAVA_TOWERS, "pixtral"})
    ),
    "LlavaNextForConditionalGeneration": _Family(read_vision=siglip.read_llava_next, towers=_LLAVA_TOWERS),
    "LlavaOnevisionForConditionalGeneration": _Family(read_vision=siglip.read_llava_onevision, towers=_LLAVA_TOWERS),
    "InternVLChatModel": _Family(read_vision=others.read_internvl, data_parallel=True),
    "Llama4ForConditionalGeneration": _Family(read_vision=others.read_llama4, data_parallel=True),
    "Gemma3ForConditionalGeneration": _Family(read_vision=siglip.read_gemma3, prefix_lm=True),
    "Gemma3nForConditionalGeneration": _Family(read_vision=gemma3n.read_gemma3n),
    "AriaForConditionalGeneration": _Family(read_vision=aria.read_aria),
    "PixtralForConditionalGeneration": _Family(read_vision=siglip.read_pixtral),
    "DeepseekOCR2ForCausalLM": _Family(read_vision=others.read_deepseek_ocr2),
    "MiniCPMV4_6ForConditionalGeneration": _MINICPM4_6,
    "MiniCPMV4_7ForConditionalGeneration": _MINICPM4_6,
    "Gemma4ForConditionalGeneration": _Family(read_vision=others.read_gemma4),
    "PaliGemmaForConditionalGeneration": _Family(read_vision=siglip.read_paligemma, prefix_lm=True),
    "Mistral3ForConditionalGeneration": _Family(read_vision=siglip.read_mistral3, towers=frozenset({"pixtral"})),
    "LightOnOCRForConditionalGeneration": _Family(read_vision=siglip.read_mistral3, towers=frozenset({"pixtral"})),
    "MiniCPMV": _Family(read_vision=siglip.read_minicpm, data_parallel=True),
    "Idefics3ForConditionalGeneration": _IDEFICS3,
    "SmolVLMForConditionalGeneration": _IDEFICS3,
    "Cohere2VisionForConditionalGeneration": _Family(
        read_vision=siglip.read_cohere2, towers=frozenset({"siglip_vision_model"})
    ),
    "Lfm2VlForConditionalGeneration": _Family(read_vision=siglip.read_lfm2, towers=frozenset({"siglip2_vision_model"})),
    "PaddleOCRVLForConditionalGeneration": _Family(read_vision=siglip.read_paddleocr, wide_rotary=True),
    "Phi3VForCausalLM": _Family(read_vision=siglip.read_phi3v),
    "MolmoForCausalLM": _Family(read_vision=siglip.read_molmo),
    "DeepseekVLV2ForCausalLM": _Family(read_vision=others.read_deepseek_vl2),
    "DeepseekOCRForCausalLM": _DEEPSEEK_OCR,
    "UnlimitedOCRForCausalLM": _DEEPSEEK_OCR,
    "Glm4vForConditionalGeneration": _Family(read_vision=qwen.read_glm4v, data_parallel=True),
    "Glm4vMoeForConditionalGeneration": _Family(read_vision=qwen.read_glm4v, data_parallel=True),
    "GlmOcrForConditionalGeneration": _Family(read_vision=qwen.read_glm_ocr, data_parallel=True),
    "KimiVLForConditionalGeneration": _KIMI,
    "KimiK25ForConditionalGeneration": _KIMI,
    "Phi4MMForCausalLM": _Family(read_vision=remote.read_phi4mm),
    "KeyeForConditionalGeneration": _Family(read_vision=remote.read_keye, wide_rotary=True),
    "KeyeVL1_5ForConditionalGeneration": _Family(read_vision=remote.read_keye1_5, wide_rotary=True),
    "InternVLForConditionalGeneration": _Family(read_vision=others.read_internvl_hf),
    "InternS1ForConditionalGeneration": _Family(read_vision=others.read_internvl_hf),
    "SkyworkR1VChatModel": _Family(read_vision=others.read_internvl),
    "H2OVLChatModel": _Family(read_vision=others.read_internvl, data_parallel=True),
    "QianfanOCRForConditionalGeneration": _Family(read_vision=others.read_qianfan, data_parallel=True),
    "Eagle2_5_VLForConditionalGeneration": _Family(read_vision=siglip_families.read_eagle2_5, data_parallel=True),
    "RForConditionalGeneration": _Family(read_vision=siglip_families.read_r4b, towers=_LLAVA_TOWERS),
    "BeeForConditionalGeneration": _Family(read_vision=siglip_families.read_bee, towers=_LLAVA_TOWERS),
    "Phi4ForCausalLMV": _Family(read_vision=siglip_families.read_phi4_siglip),
    "IsaacForConditionalGeneration": _Family(read_vision=siglip_families.read_isaac, data_parallel=True),
    "Granite4VisionForConditionalGeneration": _Family(read_vision=queries.read_granite4),
    "Moondream3ForCausalLM": _MOONDREAM3,
    "HfMoondream": _MOONDREAM3,
    "GLM4VForCausalLM": _Family(read_vision=eva.read_eva),
    "Gemma4UnifiedForConditionalGeneration": _Family(read_vision=others.read_gemma4_unified),
    "BagelForConditionalGeneration": _Family(read_vision=siglip_families.read_bagel),
    "StepVLForConditionalGeneration": _Family(read_vision=perception.read_step_vl, data_parallel=True),
    "Qwen2_5OmniModel": _QWEN2_5_OMNI,
    "Qwen2_5OmniForConditionalGeneration": _QWEN2_5_OMNI,
    "Qwen3OmniMoeForConditionalGeneration": _Family(read_vision=omni.read_qwen3_omni, deepstack=True),
    "Exaone4_5_ForConditionalGeneration": _Family(read_vision=omni.read_exaone4_5, data_parallel=True),
    "OpenCUAForConditionalGeneration": _Family(read_vision=qwen.read_qwen2_5_vl, data_parallel=True),
    "Cosmos3ForConditionalGeneration": _QWEN3,
    "Alpamayo2Super": _QWEN3,
    "CohereCompassForConditionalGeneration": _QWEN3,
    "LlavaOnevision2ForConditionalGeneration": _Family(read_vision=qwen.read_llava_onevision2),
    "InternS2PreviewForConditionalGeneration": _QWEN3_5,
    "HunYuanVLForConditionalGeneration": _Family(read_vision=remote.read_hunyuan),
    "Llama_Nemotron_Nano_VL": _Family(read_vision=remote.read_llama_nemotron),
    "NemotronH_Nano_VL_V2": _NEMOTRON_H,
    "NemotronH_Nano_Omni_Reasoning_V3": _NEMOTRON_H,
    "NemotronH_Super_Omni_Reasoning_V3": _NEMOTRON_H,
    "NemotronH_Omni_Reasoning_V3": _NEMOTRON_H,
    "Step3VLForConditionalGeneration": _Family(read_vision=remote.read_step3, data_parallel=True),
    "Molmo2ForConditionalGeneration": _Family(read_vision=remote.read_molmo2, prefix_lm=True),
    "Ovis": _Family(read_vision=remote.read_ovis),
    "Ovis2_5": _OVIS2_5,
    "Ovis2_6ForCausalLM": _OVIS2_5,
    "Ovis2_6_MoeForCausalLM": _OVIS2_5,
    "MiniCPMO": _Family(read_vision=remote.read_minicpmo, data_parallel=True),
    "Ernie4_5_VLMoeForConditionalGeneration": _Family(read_vision=qwen.read_ernie, wide_rotary=True),
    "DotsOCRForCausalLM": _Family(read_vision=qwen.read_dots, data_parallel=True, wide_rotary=True),
}
"""Architectures whose shapes are known, with what the engine can do with their towers (fact sheet 6.2)."""


def read_shape(architecture: str, config: Mapping[str, Any]) -> ModelShape | ShapeRefusal:
    """Return the shape of the checkpoint with this ``config.json``, or why it cannot be sized."""
    family = ARCHITECTURES.get(architecture)
    if family is None:
        return _unknown(architecture)
    refused = _refuse(architecture, family, config)
    if refused is not None:
        return refused
    quantisation = read_quantisation(config)
    if isinstance(quantisation, ShapeRefusal):
        return quantisation
    try:
        text = read_text(config, 2, quantisation)
        _check_text(text)
        tower = family.read_vision(config, text.hidden)
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, AttributeError) as error:
        return ShapeRefusal(
            reason="IncompleteConfig",
            message=f"the config.json of {architecture} lacks or garbles {error}; use the model's own",
        )
    vision = vision_config(config)
    return ModelShape(
        architecture=architecture,
        text=text,
        vision=replace(tower, weights=apply_quantisation(tower.weights, quantisation), wide_rotary=family.wide_rotary),
        prefix_lm=family.prefix_lm or _sees_both_ways(config),
        deepstack_levels=len(vision.get("deepstack_visual_indexes") or ()) if family.deepstack else 0,
        supports_encoder_data_parallel=family.data_parallel,
        dtype=_dtype(config),
        quantisation=quantisation,
    )


def _check_text(text: TextShape) -> None:
    """Raise ValueError where sizes contradict each other."""
    if text.head_dim < 1:
        raise ValueError(f"hidden_size {text.hidden}, which is less than its {text.heads} heads")
    if not any(layers.layers > 0 for layers in text.kv_layers):
        raise ValueError("no layer that keeps keys")
    if (text.experts or text.experts_per_token) and not 1 <= text.experts_per_token <= text.experts:
        raise ValueError(f"{text.experts_per_token} experts per token of {text.experts}")


def _sees_both_ways(config: Mapping[str, Any]) -> bool:
    """Return whether a Gemma-4 lets image tokens attend to each other (its larger sizes do)."""
    return find_text_config(config).get("use_bidirectional_attention") == "vision"


def _refuse(architecture: str, family: _Family, config: Mapping[str, Any]) -> ShapeRefusal | None:
    model_type = text_model_type(config)
    if architecture in {"MiniCPMV", "MiniCPMO"} and model_type in {"minicpmv", "minicpmo"}:
        message = f"version {config.get('version')} cannot be sized; known: 2.6, 4.0, 4.5"
        return ShapeRefusal(reason="UnknownArchitecture", message=message)
    if model_type not in FAMILIES:
        return ShapeRefusal(
            reason="UnknownArchitecture",
            message=f"the language model {model_type!r} of {architecture} cannot be sized; "
            f"{_nearest(model_type, FAMILIES)}",
        )
    tower = str(vision_config(config).get("model_type", ""))
    if family.towers and tower not in family.towers:
        known = ", ".join(sorted(family.towers))
        return ShapeRefusal(
            reason="UnknownArchitecture",
            message=f"the vision tower {tower!r} of {architecture} cannot be sized; known: {known}",
        )
    return None


def _unknown(architecture: str) -> ShapeRefusal:
    if architecture in UNSIZED:
        message = f"{architecture} cannot be sized: {UNSIZED[architecture]}; choose a model of another family"
        return ShapeRefusal(reason="ArchitectureNotSized", message=message)
    return ShapeRefusal(
        reason="UnknownArchitecture",
        message=f"{architecture} cannot be sized; {_nearest(architecture, ARCHITECTURES)}",
    )


def _nearest(name: str, known: Collection[str]) -> str:
    near = ", ".join(difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.0))
    return f"of the {len(known)} that can, the nearest names are {near}; choose a model of one of them"


def _dtype(config: Mapping[str, Any]) -> str:
    """Return the element type; a file that names none, or float32, is served as bfloat16."""
    text = config.get("text_config") or config.get("llm_config") or {}
    named = config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or text.get("torch_dtype")
    return "float16" if named in ("float16", "half") else "bfloat16"
