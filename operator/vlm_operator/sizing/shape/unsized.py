"""Architectures whose images can be counted and whose memory cannot be sized: which, and why.

Each reason is one clause that follows the architecture's name. Source: the model code of vLLM 0.33.0.
"""

from collections.abc import Mapping
from typing import Final

_POOLING: Final = "it answers with vectors or scores, and plans are made for servers that write text"
_CACHE: Final = "there is no rule for what its language model keeps of a request, nor for all of its weights"
_LANGUAGE: Final = "there is no rule for the weights of its language model"
_TOWER: Final = "there is no rule for the weights of its vision tower"

UNSIZED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "ClefFlashForJointSchema",
            "ClefOmniForJointSchema",
            "CLIPModel",
            "ColModernVBertForRetrieval",
            "ColPaliForRetrieval",
            "ColQwen3",
            "ColQwen3_5",
            "ColUltraVBertForRetrieval",
            "D3ForSequenceClassification",
            "EmbeddingGemma2Model",
            "JinaVLForRanking",
            "LlamaNemotronVLForSequenceClassification",
            "LlamaNemotronVLModel",
            "ModernVBertModel",
            "OpsColQwen3Model",
            "Qwen3VLNemotronEmbedModel",
            "SiglipModel",
        ),
        _POOLING,
    ),
    **dict.fromkeys(
        (
            "DeepseekV4ForConditionalGeneration",
            "DeepseekV41ForCausalLM",
            "Dots3NoteForCausalLM",
            "Glm5NextForConditionalGeneration",
            "InklingForConditionalGeneration",
            "MiMoV2OmniForCausalLM",
            "MiniMaxM3SparseForConditionalGeneration",
            "MuseGlimmerForCausalLM",
            "MuseGlimmerForConditionalGeneration",
            "MuseSparkForConditionalGeneration",
            "Qwen4ExpForConditionalGeneration",
            "Step3p7ForConditionalGeneration",
            "Step5ForConditionalGeneration",
        ),
        _CACHE,
    ),
    **dict.fromkeys(
        (
            "Blip2ForConditionalGeneration",
            "InternS2MobiusForConditionalGeneration",
        ),
        _LANGUAGE,
    ),
    **dict.fromkeys(
        (
            "Cosmos3EdgeForConditionalGeneration",
            "KananaVForConditionalGeneration",
            "OpenVLAForActionPrediction",
        ),
        _TOWER,
    ),
    "DiffusionGemmaForBlockDiffusion": "it fills blocks of text step by step, and plans are made for a word at a time",
    "Emu3ForConditionalGeneration": "it runs on the Transformers backend, whose split of the weights has no rule",
    "InternS1ProForConditionalGeneration": "there is no rule for the tables of its Fourier rotary embedding",
    "KimiK3ForConditionalGeneration": "there is no rule for the states of its delta attention, its residual blocks and "
    "its experts of a narrower width",
    "NemotronParseForConditionalGeneration": "it is an encoder with a decoder, whose cache of the encoder's output has "
    "no rule",
}
"""Counted architectures without a shape, and why."""
