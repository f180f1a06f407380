"""The one table from architecture to counting rule."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.reading import Source
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings, TokenRefusal
from vlm_operator.sizing.tokens.uncounted import UNCOUNTED, refuse_architecture, refuse_dropped

__all__ = ["BUILDERS", "UNCOUNTED", "Builder", "bind_rule", "lift_image_processor", "refuse_dropped"]


class Builder:
    """What binds a rule: a function of a rule module, and what is fixed of its arguments.

    The module is imported when it is first used: a plan needs one of more than forty.
    """

    __slots__ = ("fixed", "function", "module")

    def __init__(self, module: str, function: str, **fixed: Any) -> None:
        self.module = module
        self.function = function
        self.fixed: Mapping[str, Any] = fixed

    @property
    def key(self) -> tuple[Any, ...]:
        """What two architectures of the same rule share; where config.json keeps its vision part does not matter."""
        kept = sorted((name, value) for name, value in self.fixed.items() if name != "vision_config")
        return (self.module, self.function, *kept)

    def load(self) -> Callable[..., ImageRule]:
        """Return the function, its module imported."""
        module = import_module(f"vlm_operator.sizing.tokens.{self.module}")
        function: Callable[..., ImageRule] = getattr(module, self.function)
        return function

    def __call__(self, source: Source) -> ImageRule:
        """Bind the rule.

        Raises:
            Refused: The configuration lacks or contradicts something.
        """
        return self.load()(source, **self.fixed)


BUILDERS: Final[Mapping[str, Builder]] = {
    "Qwen2VLForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=False),
    "Qwen2_5_VLForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=False),
    "Qwen3VLForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "Qwen3VLMoeForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "Qwen3_5ForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "Qwen3_5MoeForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "DotsOCRForCausalLM": Builder("native_grid", "build_native_grid", completes_size=False),
    "CohereCompassForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=False),
    "Exaone4_5_ForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=False),
    "JinaVLForRanking": Builder("native_grid", "build_native_grid", completes_size=False),
    "Qwen4ExpForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "Cosmos3ForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "InternS1ProForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "InternS2PreviewForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "InternS2MobiusForConditionalGeneration": Builder("native_grid", "build_native_grid", completes_size=True),
    "ColQwen3": Builder("native_grid", "build_native_grid", completes_size=True),
    "ColQwen3_5": Builder("native_grid", "build_native_grid", completes_size=True),
    "OpsColQwen3Model": Builder("native_grid", "build_native_grid", completes_size=True),
    "Qwen3VLNemotronEmbedModel": Builder("native_grid", "build_native_grid", completes_size=True),
    "Qwen2_5OmniModel": Builder(
        "native_grid", "build_native_grid", completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "Qwen2_5OmniForConditionalGeneration": Builder(
        "native_grid", "build_native_grid", completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "Qwen3OmniMoeForConditionalGeneration": Builder(
        "native_grid", "build_native_grid", completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "Alpamayo2Super": Builder("native_limits", "build_alpamayo2"),
    "D3ForSequenceClassification": Builder("native_limits", "build_d3"),
    "ClefFlashForJointSchema": Builder("native_grid", "build_native_grid", completes_size=True),
    "ClefOmniForJointSchema": Builder(
        "native_grid", "build_native_grid", completes_size=False, vision_config="thinker_config.vision_config"
    ),
    "OpenCUAForConditionalGeneration": Builder("native_grid", "build_opencua"),
    "Cosmos3EdgeForConditionalGeneration": Builder("thin_grid", "build_cosmos3_edge"),
    "Dots3NoteForCausalLM": Builder("thin_grid", "build_dots3_note"),
    "MiMoV2OmniForCausalLM": Builder("thin_grid", "build_mimo_omni"),
    "KananaVForConditionalGeneration": Builder("thin_grid", "build_kanana"),
    "LlavaOnevision2ForConditionalGeneration": Builder("native_grid", "build_llava_onevision2"),
    "Glm4vForConditionalGeneration": Builder("budget_families", "build_glm4v"),
    "Glm4vMoeForConditionalGeneration": Builder("budget_families", "build_glm4v"),
    "GlmOcrForConditionalGeneration": Builder("budget_families", "build_glm4v"),
    "KeyeForConditionalGeneration": Builder("budget_families", "build_keye"),
    "KeyeVL1_5ForConditionalGeneration": Builder("budget_families", "build_keye"),
    "Ernie4_5_VLMoeForConditionalGeneration": Builder("budget_families", "build_ernie"),
    "PaddleOCRVLForConditionalGeneration": Builder("budget_families", "build_paddleocr"),
    "HunYuanVLForConditionalGeneration": Builder("budget_families", "build_hunyuan"),
    "MiniMaxM3SparseForConditionalGeneration": Builder("budget_families", "build_minimax_m3"),
    "KimiVLForConditionalGeneration": Builder("patch_limit", "build_kimi_vl"),
    "KimiK25ForConditionalGeneration": Builder("patch_limit", "build_kimi_k25"),
    "KimiK3ForConditionalGeneration": Builder("patch_limit", "build_kimi_k3"),
    "LlavaForConditionalGeneration": Builder("fixed", "build_llava"),
    "PaliGemmaForConditionalGeneration": Builder("fixed_families", "build_paligemma"),
    "ColPaliForRetrieval": Builder("fixed_families", "build_colpali"),
    "Gemma3nForConditionalGeneration": Builder("fixed_families", "build_gemma3n"),
    "AriaForConditionalGeneration": Builder("fixed_families", "build_aria"),
    "Blip2ForConditionalGeneration": Builder("fixed_families", "build_blip2"),
    "GLM4VForCausalLM": Builder("fixed_families", "build_glm4v"),
    "OpenVLAForActionPrediction": Builder("fixed_families", "build_openvla"),
    "CLIPModel": Builder("fixed_families", "build_clip"),
    "SiglipModel": Builder("fixed_families", "build_siglip"),
    "NemotronParseForConditionalGeneration": Builder("fixed_families", "build_nemotron_parse"),
    "Moondream3ForCausalLM": Builder("pooled_crops", "build_moondream3"),
    "HfMoondream": Builder("pooled_crops", "build_moondream3"),
    "Emu3ForConditionalGeneration": Builder("codebook_grid", "build_emu3"),
    "LlavaNextForConditionalGeneration": Builder("anyres_families", "build_llava_next"),
    "LlavaOnevisionForConditionalGeneration": Builder("anyres_families", "build_llava_onevision"),
    "BeeForConditionalGeneration": Builder("anyres_families", "build_bee"),
    "RForConditionalGeneration": Builder("anyres_families", "build_r4b"),
    "Granite4VisionForConditionalGeneration": Builder("anyres_families", "build_granite4_vision"),
    "Phi4MMForCausalLM": Builder("phi_dynamic_hd", "build_phi4mm"),
    "Phi3VForCausalLM": Builder("phi_hd_transform", "build_phi3v"),
    "InternVLChatModel": Builder("tiles_internvl", "build_internvl"),
    "SkyworkR1VChatModel": Builder("tiles_internvl", "build_image_only", forced_size=False),
    "QianfanOCRForConditionalGeneration": Builder("tiles_internvl", "build_image_only", forced_size=False),
    "Eagle2_5_VLForConditionalGeneration": Builder("tiles_internvl", "build_image_only", forced_size=True),
    "Llama_Nemotron_Nano_VL": Builder("tiles_internvl", "build_llama_nemotron"),
    "LlamaNemotronVLModel": Builder("tiles_internvl", "build_llama_nemotron_embed"),
    "LlamaNemotronVLForSequenceClassification": Builder("tiles_internvl", "build_llama_nemotron_embed"),
    "NemotronH_Nano_VL_V2": Builder("tiles_nemotron", "build_nemotron_h"),
    "NemotronH_Nano_Omni_Reasoning_V3": Builder("tiles_nemotron", "build_nemotron_h"),
    "NemotronH_Super_Omni_Reasoning_V3": Builder("tiles_nemotron", "build_nemotron_h"),
    "NemotronH_Omni_Reasoning_V3": Builder("tiles_nemotron", "build_nemotron_h"),
    "H2OVLChatModel": Builder("tiles_twice", "build_h2ovl"),
    "InternVLForConditionalGeneration": Builder("tiles_processor", "build_internvl_hf"),
    "InternS1ForConditionalGeneration": Builder("tiles_processor", "build_internvl_hf"),
    "AyaVisionForConditionalGeneration": Builder("tiles_processor", "build_aya"),
    "Cohere2VisionForConditionalGeneration": Builder("tiles_processor", "build_cohere2_vision"),
    "Llama4ForConditionalGeneration": Builder("tiles_processor", "build_llama4"),
    "MllamaForConditionalGeneration": Builder("tiles_processor", "build_mllama"),
    "Idefics3ForConditionalGeneration": Builder("edge_tiles", "build_idefics3"),
    "SmolVLMForConditionalGeneration": Builder("edge_tiles", "build_idefics3"),
    "ColModernVBertForRetrieval": Builder("edge_tiles", "build_colmodernvbert"),
    "ModernVBertModel": Builder("edge_tiles", "build_colmodernvbert"),
    "ColUltraVBertForRetrieval": Builder("capped_tiles", "build_colultravbert"),
    "Gemma3ForConditionalGeneration": Builder("pan_scan", "build_gemma3"),
    "MiniCPMV": Builder("slices", "build_minicpm"),
    "Mistral3ForConditionalGeneration": Builder("longest_edge", "build_mistral3"),
    "PixtralForConditionalGeneration": Builder("longest_edge", "build_mistral_format"),
    "Gemma4ForConditionalGeneration": Builder("soft_tokens", "build_gemma4"),
    "DiffusionGemmaForBlockDiffusion": Builder("soft_tokens", "build_gemma4"),
    "EmbeddingGemma2Model": Builder("soft_tokens", "build_embedding_gemma2"),
    "Gemma4UnifiedForConditionalGeneration": Builder("soft_tokens", "build_gemma4_unified"),
    "Lfm2VlForConditionalGeneration": Builder("view_or_tiles", "build_lfm2"),
    "LightOnOCRForConditionalGeneration": Builder("longest_edge", "build_lightonocr"),
    "DeepseekVLV2ForCausalLM": Builder("base_view", "build_deepseek_vl2"),
    "DeepseekOCRForCausalLM": Builder("base_view", "build_deepseek_ocr", tile_size=640, row_end=1),
    "DeepseekOCR2ForCausalLM": Builder("base_view", "build_deepseek_ocr", tile_size=768, row_end=0),
    "UnlimitedOCRForCausalLM": Builder("base_view", "build_unlimited_ocr"),
    "Ovis": Builder("covering", "build_ovis"),
    "Ovis2_5": Builder("clamped_grid", "build_ovis2_5"),
    "Ovis2_6ForCausalLM": Builder("clamped_grid", "build_ovis2_5"),
    "Ovis2_6_MoeForCausalLM": Builder("clamped_grid", "build_ovis2_5"),
    "Step3VLForConditionalGeneration": Builder("windows", "build_step3"),
    "StepVLForConditionalGeneration": Builder("windows", "build_step3"),
    "Step3p7ForConditionalGeneration": Builder("windows", "build_step3"),
    "Step5ForConditionalGeneration": Builder("windows", "build_step3"),
    "Molmo2ForConditionalGeneration": Builder("overlap_crops", "build_molmo2"),
    "MolmoForCausalLM": Builder("overlap_crops", "build_molmo"),
    "MiniCPMO": Builder("slices", "build_minicpm", omni=True),
    "MiniCPMV4_6ForConditionalGeneration": Builder("sized_slices", "build_minicpm_4_6", dummy_follows=False),
    "MiniCPMV4_7ForConditionalGeneration": Builder("sized_slices", "build_minicpm_4_6", dummy_follows=True),
    "Glm5NextForConditionalGeneration": Builder("padded_canvas", "build_glm5_next"),
    "Phi4ForCausalLMV": Builder("scaled_patches", "build_phi4_siglip"),
    "IsaacForConditionalGeneration": Builder("scaled_patches", "build_isaac"),
    "BagelForConditionalGeneration": Builder("bagel", "build_bagel"),
    "MuseGlimmerForConditionalGeneration": Builder("aspect_grid", "build_muse_glimmer"),
    "MuseGlimmerForCausalLM": Builder("aspect_grid", "build_muse_glimmer"),
    "MuseSparkForConditionalGeneration": Builder("aspect_grid", "build_muse_spark"),
    "DeepseekV4ForConditionalGeneration": Builder("row_ends", "build_deepseek_v4"),
    "DeepseekV41ForCausalLM": Builder("row_ends", "build_deepseek_v41"),
    "InklingForConditionalGeneration": Builder("upscaled_patches", "build_inkling"),
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
        builder = Builder("longest_edge", "build_mistral_format")
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
