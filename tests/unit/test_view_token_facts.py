"""Settings of the budget, view and edge families: what is counted, what is refused and why."""

from typing import Any

import pytest

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

GEMMA3: tuple[dict[str, Any], dict[str, Any]] = (
    {"mm_tokens_per_image": 256, "vision_config": {"image_size": 896, "patch_size": 14}},
    {
        "image_seq_length": 256,
        "do_pan_and_scan": None,
        "pan_and_scan_min_crop_size": None,
        "pan_and_scan_max_num_crops": None,
        "pan_and_scan_min_ratio_to_activate": None,
    },
)
GEMMA4: tuple[dict[str, Any], dict[str, Any]] = ({"vision_config": {"default_output_length": 280}}, {})
PIXTRAL: tuple[dict[str, Any], dict[str, Any]] = (
    {"vision_config": {"model_type": "pixtral", "image_size": 1024, "patch_size": 16}},
    {"size": {"longest_edge": 1024}},
)
LIGHTON: tuple[dict[str, Any], dict[str, Any]] = (
    {"spatial_merge_size": 2, "vision_config": {"image_size": 1540, "patch_size": 14}},
    {"size": {"longest_edge": 1540}},
)
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Gemma3ForConditionalGeneration": GEMMA3,
    "Gemma4ForConditionalGeneration": GEMMA4,
    "DiffusionGemmaForBlockDiffusion": GEMMA4,
    "EmbeddingGemma2Model": GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": ({"vision_config": {"num_soft_tokens": 280}}, {}),
    "LlavaForConditionalGeneration": PIXTRAL,
    "LightOnOCRForConditionalGeneration": LIGHTON,
    "Lfm2VlForConditionalGeneration": ({}, {}),
}


def bind(architecture: str, overrides: dict[str, Any] | None = None, **kwargs: Any) -> ImageRule | TokenRefusal:
    config, processor = FILES[architecture]
    return bind_rule(
        architecture, config, processor, ServerSettings(mm_processor_kwargs=kwargs, hf_overrides=overrides or {})
    )


def count(rule: ImageRule | TokenRefusal, width: int, height: int) -> ImageTokens:
    assert not isinstance(rule, TokenRefusal), rule.message
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens), answer
    return answer


@pytest.mark.parametrize(
    ("architecture", "size", "embed", "prompt"),
    [
        ("Gemma3ForConditionalGeneration", (4000, 100), 256, 260),
        ("Gemma4ForConditionalGeneration", (1, 1), 256, 258),
        ("DiffusionGemmaForBlockDiffusion", (413, 662), 273, 275),
        ("EmbeddingGemma2Model", (413, 662), 273, 275),
        ("Gemma4UnifiedForConditionalGeneration", (1, 1), 256, 258),
        ("LlavaForConditionalGeneration", (1024, 1024), 4096, 4160),
        ("LightOnOCRForConditionalGeneration", (1540, 1540), 3025, 3025),
        ("Lfm2VlForConditionalGeneration", (1024, 1024), 1280, 1287),
    ],
)
def test_an_image_takes_what_the_engine_counts(
    architecture: str, size: tuple[int, int], embed: int, prompt: int
) -> None:
    answer = count(bind(architecture), *size)
    assert (answer.embed_tokens, answer.prompt_tokens) == (embed, prompt)


def test_the_embedding_gemma_counts_two_tags_to_its_maximum() -> None:
    rule = bind("EmbeddingGemma2Model", max_soft_tokens=560)
    assert isinstance(rule, ImageRule)
    assert (rule.maximum().engine_tokens, rule.maximum().true_tokens) == (562, 560)


def test_an_image_without_a_tower_passes_each_token_once() -> None:
    answer = count(bind("Gemma4UnifiedForConditionalGeneration"), 1000, 1000)
    assert answer.vit_patches == answer.embed_tokens


@pytest.mark.parametrize(
    ("architecture", "kwargs", "reason"),
    [
        ("Gemma4ForConditionalGeneration", {"max_soft_tokens": 300}, "StartupFails"),
        ("Gemma4ForConditionalGeneration", {"max_soft_tokens": "280"}, "InvalidSetting"),
        ("Gemma4ForConditionalGeneration", {"pooling_kernel_size": 2}, "SettingMismatch"),
        ("Gemma4ForConditionalGeneration", {"max_soft_token": 70}, "UnknownSetting"),
        ("LlavaForConditionalGeneration", {"size": {"longest_edge": 512}}, "SettingMismatch"),
        ("LightOnOCRForConditionalGeneration", {"size": {"longest_edge": 700}}, "SettingMismatch"),
        ("LightOnOCRForConditionalGeneration", {"size": 700}, "InvalidSetting"),
        ("Lfm2VlForConditionalGeneration", {"max_tiles": 1}, "StartupFails"),
        ("Lfm2VlForConditionalGeneration", {"tile_size": 500}, "InvalidSetting"),
        ("Lfm2VlForConditionalGeneration", {"max_tiles": 900}, "InvalidSetting"),
        ("Lfm2VlForConditionalGeneration", {"downsample_factor": 4}, "SettingMismatch"),
        ("Lfm2VlForConditionalGeneration", {"images_kwargs": {"max_tiles": 4}}, "SettingMismatch"),
        ("Lfm2VlForConditionalGeneration", {"use_thumbnail": False}, "SettingMismatch"),
    ],
)
def test_a_setting_that_would_break_requests_or_the_server_is_refused(
    architecture: str, kwargs: dict[str, Any], reason: str
) -> None:
    refusal = bind(architecture, **kwargs)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


def test_switches_of_tiling_are_of_no_matter_where_there_is_one_view() -> None:
    one_view: dict[str, Any] = {"min_tiles": 1, "max_tiles": 1}
    plain = bind("Lfm2VlForConditionalGeneration", **one_view)
    switched = bind("Lfm2VlForConditionalGeneration", **one_view, use_thumbnail=False)
    assert count(switched, 3000, 2000) == count(plain, 3000, 2000)


@pytest.mark.parametrize("architecture", ["LlavaForConditionalGeneration", "LightOnOCRForConditionalGeneration"])
def test_the_edge_is_capped_where_both_flags_agree(architecture: str) -> None:
    rule = bind(architecture, {"vision_config": {"image_size": 560}}, size={"longest_edge": 560})
    assert not isinstance(rule, TokenRefusal), rule.message
    assert rule.maximum().true_tokens == (35 if architecture.startswith("Llava") else 20) ** 2


def test_an_override_of_the_tower_is_refused_in_mistrals_format() -> None:
    config, processor = PIXTRAL
    settings = ServerSettings(hf_overrides={"vision_config": {"image_size": 512}}, config_format="mistral")
    refusal = bind_rule("PixtralForConditionalGeneration", config, processor, settings)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "SettingMismatch"


def test_a_capped_edge_names_both_flags() -> None:
    rule = bind("LlavaForConditionalGeneration")
    assert not isinstance(rule, TokenRefusal)
    settings = rule.with_cap(512).settings
    assert settings.mm_processor_kwargs == {"size": {"longest_edge": 512}}
    assert settings.hf_overrides == {"vision_config": {"image_size": 512}}


@pytest.mark.parametrize(
    ("kwargs", "tokens"),
    [
        ({}, 256),
        ({"do_pan_and_scan": True}, 5 * 256),
        ({"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 1000}, 5 * 256),
        ({"do_pan_and_scan": True, "pan_and_scan_min_ratio_to_activate": 8}, 5 * 256),
        ({"do_pan_and_scan": True, "pan_and_scan_max_num_crops": 2**40}, (1 + 2730) * 256),
    ],
)
def test_the_largest_image_of_pan_and_scan_has_the_most_crops_a_decodable_image_can(
    kwargs: dict[str, Any], tokens: int
) -> None:
    rule = bind("Gemma3ForConditionalGeneration", **kwargs)
    assert not isinstance(rule, TokenRefusal), rule.message
    maximum = rule.maximum()
    assert maximum.true_tokens == tokens
    assert count(rule, *maximum.true_size).embed_tokens == tokens


def test_a_size_that_engine_and_processor_round_apart_is_refused() -> None:
    rule = bind("Gemma4ForConditionalGeneration", max_soft_tokens=70)
    assert not isinstance(rule, TokenRefusal)
    refusal = rule.count_image(1190, 17)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "PlaceholderMismatch"


def test_a_strip_whose_view_cannot_be_stacked_is_refused() -> None:
    rule = bind("Lfm2VlForConditionalGeneration")
    assert not isinstance(rule, TokenRefusal)
    refusal = rule.count_image(30_000, 10)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "StripTooLong"
