"""Families that have no rows: the values of a published checkpoint, or the defaults of its classes, for the laws.

Origin: config.json and processor files of the model named, in the parts that count.
"""

from typing import Any

from tests.conformance.families import Group
from vlm_operator.sizing.tokens import ServerSettings

_QWEN2 = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}
_VISION2 = {"patch_size": 14, "spatial_merge_size": 2}
_SIGLIP = {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14}
_CANVASES = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
_ANYRES = {"vision_config": _SIGLIP, "vision_feature_select_strategy": "full", "image_grid_pinpoints": _CANVASES}
_CHAT = {
    "vision_config": {"image_size": 448, "patch_size": 14},
    "force_image_size": 448,
    "downsample_ratio": 0.5,
    "dynamic_image_size": True,
    "use_thumbnail": True,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 12,
}
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "alpamayo2": (
        "Alpamayo2Super",
        {"vlm_config": {"vision_config": {"patch_size": 16, "spatial_merge_size": 2}}},
        {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}},
    ),
    "bagel": (
        "BagelForConditionalGeneration",
        {"vit_max_num_patch_per_side": 70, "vit_config": {"image_size": 980, "patch_size": 14}},
        {"size": {"height": 980, "width": 980}},
    ),
    "blip2": (
        "Blip2ForConditionalGeneration",
        {"num_query_tokens": 32, "vision_config": {"image_size": 224, "patch_size": 14}},
        {"size": {"height": 224, "width": 224}},
    ),
    "clip": (
        "CLIPModel",
        {"vision_config": {"image_size": 336, "patch_size": 14}},
        {"crop_size": {"height": 336, "width": 336}, "size": {"shortest_edge": 336}},
    ),
    "colpali": (
        "ColPaliForRetrieval",
        {"vlm_config": {"vision_config": {"image_size": 448, "patch_size": 14}}},
        {"size": {"height": 448, "width": 448}, "image_seq_length": 1024},
    ),
    "colultravbert": (
        "ColUltraVBertForRetrieval",
        {"vision_config": {"image_size": 512, "patch_size": 16}, "pixel_shuffle_factor": 4},
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}, "max_image_tiles": 8},
    ),
    "d3": (
        "D3ForSequenceClassification",
        {"vision_config": {"patch_size": 16, "spatial_merge_size": 2}},
        {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}},
    ),
    "deepseek_v4": (
        "DeepseekV4ForConditionalGeneration",
        {
            "vision_patch_size": 14,
            "vision_downsample_ratio": 3,
            "vision_max_n_token": 1024,
            "vision_min_pixels": 295936,
            "vision_max_wh_ratio": 8,
        },
        {},
    ),
    "deepseek_v41": ("DeepseekV41ForCausalLM", {"vision_config": {}}, {}),
    "embedding_gemma2": (
        "EmbeddingGemma2Model",
        {"vision_config": {"patch_size": 16, "pooling_kernel_size": 3, "default_output_length": 280}},
        {"max_soft_tokens": 280, "patch_size": 16, "pooling_kernel_size": 3},
    ),
    "emu3": ("Emu3ForConditionalGeneration", {}, {"min_pixels": 262144, "max_pixels": 1048576, "spatial_factor": 8}),
    "glm4v": ("GLM4VForCausalLM", {"vision_config": {"image_size": 1120, "patch_size": 14}}, {}),
    "glm5_next": (
        "Glm5NextForConditionalGeneration",
        {"vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}},
        {
            "patch_size": 14,
            "merge_size": 2,
            "temporal_patch_size": 2,
            "patch_expand_factor": 2,
            "min_image_tokens": 16,
            "max_image_tokens": 2000,
        },
    ),
    "inkling": ("InklingForConditionalGeneration", {"vision_config": {"decoder_dmodel": 6144, "patch_size": 40}}, {}),
    "isaac": (
        "IsaacForConditionalGeneration",
        {
            "video_patch_size": 16,
            "vision_max_num_patches": 6144,
            "vision_min_num_patches": 256,
            "pixel_shuffle_scale": 2,
        },
        {},
    ),
    "moondream3": ("HfMoondream", {"config": {}}, {}),
    "muse_glimmer": (
        "MuseGlimmerForConditionalGeneration",
        {"vision_config": {"patch_size": 14, "merge_size": 2}},
        {"patch_size": 14, "merge_size": 2, "max_image_tokens": 4096},
    ),
    "muse_spark": (
        "MuseSparkForConditionalGeneration",
        {"vision_config": {"patch_size": 14, "merge_size": 2}},
        {"image_processor": {"max_image_tokens": 4096}},
    ),
    "nemotron_parse": (
        "NemotronParseForConditionalGeneration",
        {"image_size": [2048, 1648], "encoder": {"patch_size": 16}},
        {"final_size": [2048, 1648]},
    ),
    "openvla": ("OpenVLAForActionPrediction", {"image_sizes": [224, 224]}, {}),
    "phi4_siglip": (
        "Phi4ForCausalLMV",
        {"vision_config": {"patch_size": 16}, "max_num_patches": 3600, "min_num_patches": 256},
        {},
    ),
    "siglip": ("SiglipModel", {"vision_config": {"image_size": 384, "patch_size": 14}}, {"size": 384}),
    "bee": ("BeeForConditionalGeneration", _ANYRES, {}),
    "colmodernvbert": (
        "ColModernVBertForRetrieval",
        {"vision_config": {"image_size": 512, "patch_size": 16}, "pixel_shuffle_factor": 4},
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
    ),
    "cosmos3_edge": (
        "Cosmos3EdgeForConditionalGeneration",
        {"vision_config": {"patch_size": 16, "spatial_merge_size": 2}},
        {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}},
    ),
    "dots3_note": ("Dots3NoteForCausalLM", {}, {"vision_config": _QWEN2}),
    "eagle2_5": ("Eagle2_5_VLForConditionalGeneration", _CHAT, {}),
    "gemma4_unified": ("Gemma4UnifiedForConditionalGeneration", {"vision_config": {"num_soft_tokens": 280}}, {}),
    "granite4_vision": (
        "Granite4VisionForConditionalGeneration",
        {**_ANYRES, "vision_config": {**_SIGLIP, "patch_size": 16}, "downsample_rate": "4/8"},
        {
            "size": {"height": 384, "width": 384},
            "crop_size": {"height": 384, "width": 384},
            "image_grid_pinpoints": _CANVASES,
        },
    ),
    "h2ovl": ("H2OVLChatModel", {**_CHAT, "max_dynamic_patch": 6, "use_msac": True}, {}),
    "kanana_v": ("KananaVForConditionalGeneration", {"vision_config": _VISION2}, _QWEN2),
    "llama_nemotron_embed": (
        "LlamaNemotronVLModel",
        {
            "force_image_size": 512,
            "downsample_ratio": 0.5,
            "use_thumbnail": True,
            "vision_config": {"patch_size": 16},
        },
        {"max_input_tiles": 6},
    ),
    "llava_onevision2": ("LlavaOnevision2ForConditionalGeneration", {"vision_config": _VISION2}, _QWEN2),
    "mimo_omni": (
        "MiMoV2OmniForCausalLM",
        {"vision_config": {"patch_size": 16, "spatial_merge_size": 2}},
        {},
    ),
    "minicpm_v_4_7": (
        "MiniCPMV4_7ForConditionalGeneration",
        {"image_size": 448},
        {"patch_size": 14, "max_slice_nums": 9, "scale_resolution": 448, "slice_mode": True},
    ),
    "minimax_m3": (
        "MiniMaxM3SparseForConditionalGeneration",
        {"vision_config": _VISION2},
        {"patch_size": 14, "merge_size": 2, "max_pixels": 12845056},
    ),
    "minimax_m3_long_side": (
        "MiniMaxM3SparseForConditionalGeneration",
        {"vision_config": _VISION2},
        {"patch_size": 14, "merge_size": 2, "max_long_side_pixel": 2016},
    ),
    "opencua": ("OpenCUAForConditionalGeneration", {"vision_config": _VISION2}, _QWEN2),
    "qianfan_ocr": ("QianfanOCRForConditionalGeneration", _CHAT, {}),
    # Without the checkpoint's larger canvases: the engine's dummy fills the largest, which a request could not.
    "r_4b": ("RForConditionalGeneration", {**_ANYRES, "image_grid_pinpoints": _CANVASES[:3]}, {}),
}


def groups() -> list[Group]:
    """Return one group without rows for each family."""
    return [
        Group(
            name=name,
            family=name,
            architecture=architecture,
            settings=ServerSettings(),
            files={"config.json": config, "preprocessor_config.json": processor, "model": ""},
        )
        for name, (architecture, config, processor) in FAMILIES.items()
    ]
