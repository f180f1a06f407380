"""Families of square tiles: real counts, and settings that the engine refuses, ignores or applies to pixels alone."""

import copy
from typing import Any

import pytest

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.registry import refuse_dropped

CHAT: dict[str, Any] = {
    "vision_config": {"image_size": 448, "patch_size": 14},
    "force_image_size": 448,
    "downsample_ratio": 0.5,
    "dynamic_image_size": True,
    "use_thumbnail": True,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 12,
}
NEMOTRON: dict[str, Any] = {
    "force_image_size": 512,
    "patch_size": 16,
    "downsample_ratio": 0.5,
    "use_thumbnail": True,
    "vision_config": {"patch_size": 16, "args": {}},
    "llm_config": {"max_position_embeddings": 131072},
}
DYNAMIC: dict[str, Any] = {
    **NEMOTRON,
    "vision_config": {"args": {"min_num_patches": 1024, "max_num_patches": 13312}},
}
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "InternVLChatModel": ({**CHAT, "llm_config": {"model_type": "internlm2"}}, {}),
    "SkyworkR1VChatModel": (CHAT, {}),
    "QianfanOCRForConditionalGeneration": (CHAT, {}),
    "Eagle2_5_VLForConditionalGeneration": (CHAT, {}),
    "H2OVLChatModel": ({**CHAT, "max_dynamic_patch": 6, "use_msac": True}, {}),
    "Llama_Nemotron_Nano_VL": (NEMOTRON, {}),
    "LlamaNemotronVLModel": (NEMOTRON, {"max_input_tiles": 6}),
    "NemotronH_Nano_VL_V2": (NEMOTRON, {}),
    "NemotronH_Nano_Omni_Reasoning_V3": (DYNAMIC, {}),
    "InternVLForConditionalGeneration": (
        {"vision_config": {"image_size": [448, 448], "patch_size": [14, 14]}},
        {"size": {"height": 448, "width": 448}, "crop_to_patches": False, "image_seq_length": 256},
    ),
    "AyaVisionForConditionalGeneration": (
        {"vision_config": {"image_size": 364, "patch_size": 14}},
        {"size": {"height": 364, "width": 364}, "max_patches": 12, "patch_size": 14, "downsample_factor": 2},
    ),
    "Cohere2VisionForConditionalGeneration": (
        {"vision_config": {"image_size": 512, "patch_size": 16}, "downsample_factor": 2},
        {"size": {"height": 512, "width": 512}, "max_patches": 12},
    ),
    "Llama4ForConditionalGeneration": (
        {"vision_config": {"image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5}},
        {"size": {"height": 336, "width": 336}, "max_patches": 16},
    ),
    "MllamaForConditionalGeneration": (
        {"vision_config": {"patch_size": 14}},
        {"size": {"height": 560, "width": 560}, "max_image_tiles": 4},
    ),
    "Idefics3ForConditionalGeneration": (
        {"vision_config": {"patch_size": 14}, "scale_factor": 2},
        {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}, "image_seq_len": 169},
    ),
    "ColModernVBertForRetrieval": (
        {"vision_config": {"image_size": 512, "patch_size": 16}, "pixel_shuffle_factor": 4},
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
    ),
}


def bind(architecture: str, kwargs: dict[str, Any] | None = None, **settings: Any) -> ImageRule | TokenRefusal:
    config, processor = copy.deepcopy(FILES[architecture])
    return bind_rule(architecture, config, processor, ServerSettings(mm_processor_kwargs=kwargs or {}, **settings))


def bound(architecture: str, kwargs: dict[str, Any] | None = None, **settings: Any) -> ImageRule:
    rule = bind(architecture, kwargs, **settings)
    assert isinstance(rule, ImageRule), rule
    return rule


@pytest.mark.parametrize(
    ("architecture", "size", "embed", "prompt"),
    [
        ("InternVLChatModel", (640, 480), 3328, 3330),
        ("SkyworkR1VChatModel", (640, 480), 3328, 3330),
        ("QianfanOCRForConditionalGeneration", (448, 448), 256, 258),
        ("Eagle2_5_VLForConditionalGeneration", (1792, 448), 1280, 1282),
        ("Llama_Nemotron_Nano_VL", (980, 980), 1280, 1282),
        ("LlamaNemotronVLModel", (1536, 512), 1024, 1026),
        ("NemotronH_Nano_VL_V2", (980, 980), 1280, 1282),
        ("NemotronH_Nano_Omni_Reasoning_V3", (1275, 1650), 2080, 2082),
        ("InternVLForConditionalGeneration", (768, 1024), 3328, 3330),
        ("AyaVisionForConditionalGeneration", (27, 500), 2197, 2212),
        ("Cohere2VisionForConditionalGeneration", (672, 672), 1280, 1287),
        ("Llama4ForConditionalGeneration", (1024, 1024), 2448, 2467),
        ("Llama4ForConditionalGeneration", (4032, 3024), 1872, 1887),
        ("Idefics3ForConditionalGeneration", (1, 1), 2873, 2912),
        ("ColModernVBertForRetrieval", (4032, 3024), 64, 64),
    ],
)
def test_an_image_takes_what_the_engine_counts(
    architecture: str, size: tuple[int, int], embed: int, prompt: int
) -> None:
    answer = bound(architecture).count_image(*size)
    assert isinstance(answer, ImageTokens)
    assert (answer.embed_tokens, answer.prompt_tokens) == (embed, prompt)


@pytest.mark.parametrize(
    ("architecture", "kwargs", "reason"),
    [
        ("InternVLChatModel", {"images_kwargs": {"max_dynamic_patch": 4}}, "StartupFails"),
        ("InternVLChatModel", {"image_size": 224}, "SettingMismatch"),
        ("SkyworkR1VChatModel", {"max_patches": 4}, "StartupFails"),
        ("H2OVLChatModel", {"max_dynamic_patch": 100}, "InvalidSetting"),
        ("Llama_Nemotron_Nano_VL", {"max_dynamic_patch": 4}, "UnknownSetting"),
        ("NemotronH_Nano_VL_V2", {"max_dynamic_patch": 4}, "StartupFails"),
        ("NemotronH_Nano_VL_V2", {"max_num_tiles": "4"}, "InvalidSetting"),
        ("InternVLForConditionalGeneration", {"max_tiles": 4}, "UnknownSetting"),
        ("InternVLForConditionalGeneration", {"min_patches": 13}, "InvalidSetting"),
        ("InternVLForConditionalGeneration", {"size": {"height": 224, "width": 224}}, "SettingMismatch"),
        ("Cohere2VisionForConditionalGeneration", {"images_kwargs": {"max_patches": 4}}, "SettingMismatch"),
        ("Llama4ForConditionalGeneration", {"images_kwargs": {"max_patches": 4}}, "SettingMismatch"),
        ("Llama4ForConditionalGeneration", {"max_patches": 10**9}, "InvalidSetting"),
        ("Idefics3ForConditionalGeneration", {"images_kwargs": {"size": {"longest_edge": 728}}}, "SettingMismatch"),
        ("Idefics3ForConditionalGeneration", {"max_image_size": {"longest_edge": 182}}, "SettingMismatch"),
        ("Idefics3ForConditionalGeneration", {"size": {"longest_edge": 4096}}, "InvalidSetting"),
        ("Idefics3ForConditionalGeneration", {"size": {"height": 364, "width": 364}}, "MissingProcessorValue"),
        ("Idefics3ForConditionalGeneration", {"image_seq_len": 64}, "UnknownSetting"),
    ],
)
def test_a_setting_that_would_break_requests_or_the_server_is_refused(
    architecture: str, kwargs: dict[str, Any], reason: str
) -> None:
    refusal = bind(architecture, kwargs)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


@pytest.mark.parametrize(
    ("architecture", "kwargs", "name"),
    [
        ("InternVLForConditionalGeneration", {"max_dynamic_patch": 4}, "mm_processor_kwargs.max_dynamic_patch"),
        ("NemotronH_Nano_Omni_Reasoning_V3", {"max_num_tiles": 4}, "mm_processor_kwargs.max_num_tiles"),
        ("ColModernVBertForRetrieval", {"do_image_splitting": True}, "mm_processor_kwargs.do_image_splitting"),
    ],
)
def test_an_ignored_setting_is_named_and_changes_nothing(architecture: str, kwargs: dict[str, Any], name: str) -> None:
    rule = bound(architecture, kwargs)
    assert rule.ignored_settings == (name,)
    assert rule.count_image(2000, 1000) == bound(architecture).count_image(2000, 1000)


def test_a_qwen2_tokenizer_without_video_token_takes_processor_settings() -> None:
    config: dict[str, Any] = {**CHAT, "llm_config": {"model_type": "qwen2", "vocab_size": 151655}}
    settings = ServerSettings(mm_processor_kwargs={"max_dynamic_patch": 4})
    assert isinstance(bind_rule("InternVLChatModel", config, {}, settings), ImageRule)
    config["llm_config"]["vocab_size"] = 151674
    assert isinstance(bind_rule("InternVLChatModel", config, {}, settings), TokenRefusal)


def test_internvl_hf_cuts_tiles_although_its_file_and_the_engine_say_otherwise() -> None:
    shipped = bound("InternVLForConditionalGeneration").maximum()
    assert (shipped.true_tokens, shipped.engine_tokens, shipped.dummy_size) == (3328, 256, (448, 448))
    told = bound("InternVLForConditionalGeneration", {"crop_to_patches": True}).maximum()
    assert (told.true_tokens, told.engine_tokens, told.dummy_size) == (3328, 3328, (5376, 448))
    whole = bound("InternVLForConditionalGeneration", {"crop_to_patches": False})
    assert whole.maximum().true_tokens == 256
    assert whole.cap is not None
    assert not whole.cap.tighter


def test_the_engine_lists_one_tile_more_where_there_is_a_thumbnail() -> None:
    config = {**CHAT, "max_dynamic_patch": 23, "llm_config": {"model_type": "internlm2"}}
    rule = bind_rule("InternVLChatModel", config, {})
    assert isinstance(rule, ImageRule)
    assert rule.maximum().dummy_size == (448, 23 * 448)
    plain = bound("NemotronH_Nano_VL_V2", {"max_num_tiles": 23})
    assert plain.maximum().dummy_size == (23 * 512, 512)


def test_h2ovl_cuts_an_image_twice() -> None:
    twice = bound("H2OVLChatModel")
    answer = twice.count_image(448, 448)
    assert isinstance(answer, ImageTokens)
    # One tile, then four and a thumbnail, less one.
    assert answer.tiles == 1 + 5 - 1
    once = bound("H2OVLChatModel", {"use_msac": False}).count_image(448, 448)
    assert isinstance(once, ImageTokens)
    assert once.tiles == 1


@pytest.mark.parametrize(
    ("kwargs", "size", "tokens"),
    [
        ({}, (10, 10), 1601),
        ({}, (4032, 3024), 4 * 1601),
        ({"max_image_tiles": 2}, (4032, 3024), 2 * 1601),
        ({"size": {"height": 448, "width": 448}}, (4032, 3024), 4 * 1025),
    ],
)
def test_cross_attention_takes_tiles_and_one_token_of_the_prompt(
    kwargs: dict[str, Any], size: tuple[int, int], tokens: int
) -> None:
    rule = bound("MllamaForConditionalGeneration", kwargs)
    answer = rule.count_image(*size)
    assert isinstance(answer, ImageTokens)
    assert (answer.embed_tokens, answer.prompt_tokens) == (tokens, 1)
    assert sum(part.count * part.tokens for part in rule.parts(answer) if part.embedded) == tokens


@pytest.mark.parametrize("architecture", ["MllamaForConditionalGeneration", "AyaVisionForConditionalGeneration"])
def test_a_dropped_architecture_counts_but_gets_no_plan(architecture: str) -> None:
    assert isinstance(bind(architecture), ImageRule)
    refusal = refuse_dropped(architecture)
    assert refusal is not None
    assert refusal.reason == "ArchitectureDropped"


def test_dynamic_resolution_never_fills_the_context_that_the_engine_plans_for() -> None:
    rule = bound("NemotronH_Nano_Omni_Reasoning_V3", max_model_len=16384)
    maximum = rule.maximum()
    assert (maximum.engine_tokens, maximum.dummy_size, maximum.dummy_tokens) == (16129, (4064, 4064), 3306)
    # Twice the budget of 13,312 patches: a strip of one row, which becomes two.
    assert maximum.true_tokens == 2 * 13312 // 4
    assert min(maximum.true_size) == 1
    assert bound("NemotronH_Nano_Omni_Reasoning_V3").maximum().engine_tokens == 362**2


def test_a_short_context_leaves_an_image_less() -> None:
    rule = bound("NemotronH_Nano_Omni_Reasoning_V3", max_model_len=1028)
    answer = rule.count_image(4000, 3000)
    assert isinstance(answer, ImageTokens)
    assert answer.embed_tokens <= 1024
    assert rule.maximum().true_tokens == 1024


def test_a_strip_that_shrinks_to_nothing_is_refused() -> None:
    refusal = bound("NemotronH_Nano_Omni_Reasoning_V3").count_image(400_000, 8)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "AspectRatioTooLarge"
    assert "400000x8" in refusal.message


def test_idefics_miscounts_some_images_at_an_edge_of_no_whole_tiles() -> None:
    rule = bound("Idefics3ForConditionalGeneration", {"size": {"longest_edge": 1000}})
    refusal = rule.count_image(1000, 700)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "SettingMismatch"
    assert isinstance(rule.count_image(1000, 1000), ImageTokens)


def test_files_that_disagree_about_a_tile_are_refused() -> None:
    for architecture, key, value in (
        ("Cohere2VisionForConditionalGeneration", "patch_size", 14),
        ("Llama4ForConditionalGeneration", "size", {"height": 224, "width": 224}),
        ("Idefics3ForConditionalGeneration", "image_seq_len", 64),
        ("ColModernVBertForRetrieval", "max_image_size", {"longest_edge": 364}),
    ):
        config, processor = copy.deepcopy(FILES[architecture])
        refusal = bind_rule(architecture, config, {**processor, key: value})
        assert isinstance(refusal, TokenRefusal)
        assert refusal.reason == "SettingMismatch", architecture
