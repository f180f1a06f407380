"""The one table from architecture to counting rule."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from vlm_operator.sizing.tokens import (
    anyres_families,
    aspect_grid,
    bagel,
    base_view,
    budget_families,
    capped_tiles,
    clamped_grid,
    codebook_grid,
    covering,
    edge_tiles,
    fixed,
    fixed_families,
    longest_edge,
    native_grid,
    native_limits,
    overlap_crops,
    padded_canvas,
    pan_scan,
    patch_limit,
    phi_dynamic_hd,
    phi_hd_transform,
    pooled_crops,
    reading,
    row_ends,
    scaled_patches,
    sized_slices,
    slices,
    soft_tokens,
    thin_grid,
    tiles_internvl,
    tiles_nemotron,
    tiles_processor,
    tiles_twice,
    upscaled_patches,
    view_or_tiles,
    windows,
)
from vlm_operator.sizing.tokens.reading import Source
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings, TokenRefusal
from vlm_operator.sizing.tokens.uncounted import UNCOUNTED, refuse_architecture, refuse_dropped

__all__ = ["BUILDERS", "UNCOUNTED", "Builder", "bind_rule", "lift_image_processor", "refuse_dropped"]

Builder = Callable[[Source], ImageRule]

BUILDERS: Final[Mapping[str, Builder]] = {
    "Qwen2VLForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=False),
    "Qwen2_5_VLForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=False),
    "Qwen3VLForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "Qwen3VLMoeForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "Qwen3_5ForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "Qwen3_5MoeForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "DotsOCRForCausalLM": partial(native_grid.build_native_grid, completes_size=False),
    "CohereCompassForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=False),
    "Exaone4_5_ForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=False),
    "JinaVLForRanking": partial(native_grid.build_native_grid, completes_size=False),
    "Qwen4ExpForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "Cosmos3ForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "InternS1ProForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "InternS2PreviewForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "InternS2MobiusForConditionalGeneration": partial(native_grid.build_native_grid, completes_size=True),
    "ColQwen3": partial(native_grid.build_native_grid, completes_size=True),
    "ColQwen3_5": partial(native_grid.build_native_grid, completes_size=True),
    "OpsColQwen3Model": partial(native_grid.build_native_grid, completes_size=True),
    "Qwen3VLNemotronEmbedModel": partial(native_grid.build_native_grid, completes_size=True),
    "Qwen2_5OmniModel": partial(
        native_grid.build_native_grid, completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "Qwen2_5OmniForConditionalGeneration": partial(
        native_grid.build_native_grid, completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "Qwen3OmniMoeForConditionalGeneration": partial(
        native_grid.build_native_grid, completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "Alpamayo2Super": native_limits.build_alpamayo2,
    "D3ForSequenceClassification": native_limits.build_d3,
    "ClefFlashForJointSchema": partial(native_grid.build_native_grid, completes_size=True),
    "ClefOmniForJointSchema": partial(
        native_grid.build_native_grid, completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "OpenCUAForConditionalGeneration": native_grid.build_opencua,
    "Cosmos3EdgeForConditionalGeneration": thin_grid.build_cosmos3_edge,
    "Dots3NoteForCausalLM": thin_grid.build_dots3_note,
    "MiMoV2OmniForCausalLM": thin_grid.build_mimo_omni,
    "KananaVForConditionalGeneration": thin_grid.build_kanana,
    "LlavaOnevision2ForConditionalGeneration": native_grid.build_llava_onevision2,
    "Glm4vForConditionalGeneration": budget_families.build_glm4v,
    "Glm4vMoeForConditionalGeneration": budget_families.build_glm4v,
    "GlmOcrForConditionalGeneration": budget_families.build_glm4v,
    "KeyeForConditionalGeneration": budget_families.build_keye,
    "KeyeVL1_5ForConditionalGeneration": budget_families.build_keye,
    "Ernie4_5_VLMoeForConditionalGeneration": budget_families.build_ernie,
    "PaddleOCRVLForConditionalGeneration": budget_families.build_paddleocr,
    "HunYuanVLForConditionalGeneration": budget_families.build_hunyuan,
    "MiniMaxM3SparseForConditionalGeneration": budget_families.build_minimax_m3,
    "KimiVLForConditionalGeneration": patch_limit.build_kimi_vl,
    "KimiK25ForConditionalGeneration": patch_limit.build_kimi_k25,
    "KimiK3ForConditionalGeneration": patch_limit.build_kimi_k3,
    "LlavaForConditionalGeneration": fixed.build_llava,
    "PaliGemmaForConditionalGeneration": fixed_families.build_paligemma,
    "ColPaliForRetrieval": fixed_families.build_colpali,
    "Gemma3nForConditionalGeneration": fixed_families.build_gemma3n,
    "AriaForConditionalGeneration": fixed_families.build_aria,
    "Blip2ForConditionalGeneration": fixed_families.build_blip2,
    "GLM4VForCausalLM": fixed_families.build_glm4v,
    "OpenVLAForActionPrediction": fixed_families.build_openvla,
    "CLIPModel": fixed_families.build_clip,
    "SiglipModel": fixed_families.build_siglip,
    "NemotronParseForConditionalGeneration": fixed_families.build_nemotron_parse,
    "Moondream3ForCausalLM": pooled_crops.build_moondream3,
    "HfMoondream": pooled_crops.build_moondream3,
    "Emu3ForConditionalGeneration": codebook_grid.build_emu3,
    "LlavaNextForConditionalGeneration": anyres_families.build_llava_next,
    "LlavaOnevisionForConditionalGeneration": anyres_families.build_llava_onevision,
    "BeeForConditionalGeneration": anyres_families.build_bee,
    "RForConditionalGeneration": anyres_families.build_r4b,
    "Granite4VisionForConditionalGeneration": anyres_families.build_granite4_vision,
    "Phi4MMForCausalLM": phi_dynamic_hd.build_phi4mm,
    "Phi3VForCausalLM": phi_hd_transform.build_phi3v,
    "InternVLChatModel": tiles_internvl.build_internvl,
    "SkyworkR1VChatModel": partial(tiles_internvl.build_image_only, forced_size=False),
    "QianfanOCRForConditionalGeneration": partial(tiles_internvl.build_image_only, forced_size=False),
    "Eagle2_5_VLForConditionalGeneration": partial(tiles_internvl.build_image_only, forced_size=True),
    "Llama_Nemotron_Nano_VL": tiles_internvl.build_llama_nemotron,
    "LlamaNemotronVLModel": tiles_internvl.build_llama_nemotron_embed,
    "LlamaNemotronVLForSequenceClassification": tiles_internvl.build_llama_nemotron_embed,
    "NemotronH_Nano_VL_V2": tiles_nemotron.build_nemotron_h,
    "NemotronH_Nano_Omni_Reasoning_V3": tiles_nemotron.build_nemotron_h,
    "NemotronH_Super_Omni_Reasoning_V3": tiles_nemotron.build_nemotron_h,
    "NemotronH_Omni_Reasoning_V3": tiles_nemotron.build_nemotron_h,
    "H2OVLChatModel": tiles_twice.build_h2ovl,
    "InternVLForConditionalGeneration": tiles_processor.build_internvl_hf,
    "InternS1ForConditionalGeneration": tiles_processor.build_internvl_hf,
    "AyaVisionForConditionalGeneration": tiles_processor.build_aya,
    "Cohere2VisionForConditionalGeneration": tiles_processor.build_cohere2_vision,
    "Llama4ForConditionalGeneration": tiles_processor.build_llama4,
    "MllamaForConditionalGeneration": tiles_processor.build_mllama,
    "Idefics3ForConditionalGeneration": edge_tiles.build_idefics3,
    "SmolVLMForConditionalGeneration": edge_tiles.build_idefics3,
    "ColModernVBertForRetrieval": edge_tiles.build_colmodernvbert,
    "ModernVBertModel": edge_tiles.build_colmodernvbert,
    "ColUltraVBertForRetrieval": capped_tiles.build_colultravbert,
    "Gemma3ForConditionalGeneration": pan_scan.build_gemma3,
    "MiniCPMV": slices.build_minicpm,
    "Mistral3ForConditionalGeneration": longest_edge.build_mistral3,
    "PixtralForConditionalGeneration": longest_edge.build_mistral_format,
    "Gemma4ForConditionalGeneration": soft_tokens.build_gemma4,
    "DiffusionGemmaForBlockDiffusion": soft_tokens.build_gemma4,
    "EmbeddingGemma2Model": soft_tokens.build_embedding_gemma2,
    "Gemma4UnifiedForConditionalGeneration": soft_tokens.build_gemma4_unified,
    "Lfm2VlForConditionalGeneration": view_or_tiles.build_lfm2,
    "LightOnOCRForConditionalGeneration": longest_edge.build_lightonocr,
    "DeepseekVLV2ForCausalLM": base_view.build_deepseek_vl2,
    "DeepseekOCRForCausalLM": partial(base_view.build_deepseek_ocr, tile_size=640, row_end=1),
    "DeepseekOCR2ForCausalLM": partial(base_view.build_deepseek_ocr, tile_size=768, row_end=0),
    "UnlimitedOCRForCausalLM": base_view.build_unlimited_ocr,
    "Ovis": covering.build_ovis,
    "Ovis2_5": clamped_grid.build_ovis2_5,
    "Ovis2_6ForCausalLM": clamped_grid.build_ovis2_5,
    "Ovis2_6_MoeForCausalLM": clamped_grid.build_ovis2_5,
    "Step3VLForConditionalGeneration": windows.build_step3,
    "StepVLForConditionalGeneration": windows.build_step3,
    "Step3p7ForConditionalGeneration": windows.build_step3,
    "Step5ForConditionalGeneration": windows.build_step3,
    "Molmo2ForConditionalGeneration": overlap_crops.build_molmo2,
    "MolmoForCausalLM": overlap_crops.build_molmo,
    "MiniCPMO": partial(slices.build_minicpm, omni=True),
    "MiniCPMV4_6ForConditionalGeneration": partial(sized_slices.build_minicpm_4_6, dummy_follows=False),
    "MiniCPMV4_7ForConditionalGeneration": partial(sized_slices.build_minicpm_4_6, dummy_follows=True),
    "Glm5NextForConditionalGeneration": padded_canvas.build_glm5_next,
    "Phi4ForCausalLMV": scaled_patches.build_phi4_siglip,
    "IsaacForConditionalGeneration": scaled_patches.build_isaac,
    "BagelForConditionalGeneration": bagel.build_bagel,
    "MuseGlimmerForConditionalGeneration": aspect_grid.build_muse_glimmer,
    "MuseGlimmerForCausalLM": aspect_grid.build_muse_glimmer,
    "MuseSparkForConditionalGeneration": aspect_grid.build_muse_spark,
    "DeepseekV4ForConditionalGeneration": row_ends.build_deepseek_v4,
    "DeepseekV41ForCausalLM": row_ends.build_deepseek_v41,
    "InklingForConditionalGeneration": upscaled_patches.build_inkling,
}

_MISTRAL_FORMAT: Final = frozenset(
    {"Mistral3ForConditionalGeneration", "LlavaForConditionalGeneration", "PixtralForConditionalGeneration"}
)
"""Architectures whose checkpoints also come in Mistral's own format, which the engine loads as Pixtral."""


def bind_rule(
    architecture: str,
    config: Mapping[str, Any],
    processor: Mapping[str, Any],
    settings: ServerSettings = ServerSettings(),  # noqa: B008 - frozen
    model_id: str = "",
) -> ImageRule | TokenRefusal:
    """Return the rule of ``architecture`` bound to one model and the server's settings, or why there is none.

    Args:
        architecture: Entry of ``architectures`` in config.json.
        config: Content of config.json; for Mistral's own format params.json does as well.
        processor: Content of preprocessor_config.json and processor_config.json, merged; may be empty where
            the family keeps its values in config.json.
        settings: Server flags.
        model_id: For messages.
    """
    builder = BUILDERS.get(architecture)
    if builder is None:
        return refuse_architecture(architecture, model_id, BUILDERS)
    if settings.config_format == "mistral":
        if architecture not in _MISTRAL_FORMAT:
            return TokenRefusal(
                reason="UnsupportedConfigFormat",
                message=f"{model_id or architecture}: --config-format mistral, but {architecture} has no "
                "checkpoint in that format; drop the flag",
            )
        builder = longest_edge.build_mistral_format
    source = Source(
        model_id=model_id,
        config=reading.merge(config, settings.hf_overrides),
        processor=lift_image_processor(processor),
        settings=settings,
    )
    try:
        return builder(source)
    except reading.Refused as refused:
        return refused.refusal


def lift_image_processor(processor: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``processor`` with the section that newer checkpoints keep image values in laid on the top level."""
    nested = processor.get("image_processor")
    return reading.merge(processor, nested) if isinstance(nested, Mapping) else processor
