"""Counts that were known before any rule was written, and what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.caps import tightest_cap

QWEN = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}
QWEN_CONFIG = {"vision_config": {"patch_size": 14, "spatial_merge_size": 2}}
LLAVA = {"crop_size": {"height": 336, "width": 336}, "size": {"shortest_edge": 336}}
LLAVA_CONFIG = {
    "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
    "vision_feature_select_strategy": "default",
}
INTERNVL_CONFIG = {
    "llm_config": {"model_type": "qwen2"},
    "vision_config": {"image_size": 448, "patch_size": 14},
    "force_image_size": 448,
    "downsample_ratio": 0.5,
    "dynamic_image_size": True,
    "use_thumbnail": True,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 12,
}
MISTRAL_CONFIG = {"vision_config": {"image_size": 1540, "patch_size": 14}, "spatial_merge_size": 2}


def bind(
    architecture: str,
    config: Mapping[str, Any],
    processor: Mapping[str, Any],
    settings: ServerSettings | None = None,
) -> ImageRule:
    rule = bind_rule(architecture, config, processor, settings or ServerSettings())
    assert not isinstance(rule, TokenRefusal), rule.message
    return rule


def qwen(version: str = "2_5_", **kwargs: Any) -> ImageRule:
    name = f"Qwen{version}VLForConditionalGeneration"
    return bind(name, QWEN_CONFIG, QWEN, ServerSettings(mm_processor_kwargs=kwargs))


def cap_settings(rule: ImageRule, sizes: list[tuple[int, int]], min_pixels: int | None) -> ServerSettings:
    capped = tightest_cap(rule, sizes, min_pixels=min_pixels)
    assert capped is not None
    return capped.settings


def count(rule: ImageRule, width: int, height: int) -> ImageTokens:
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens), answer
    return answer


@pytest.mark.parametrize(("width", "height", "tokens"), [(1024, 1024, 1369), (3840, 2160, 10549), (4032, 3024, 15552)])
def test_qwen2_5_vl(width: int, height: int, tokens: int) -> None:
    assert count(qwen(), width, height).embed_tokens == tokens


@pytest.mark.parametrize(("width", "height", "tokens"), [(4032, 3024, 1230), (1920, 1080, 1222)])
def test_qwen2_5_vl_with_a_cap(width: int, height: int, tokens: int) -> None:
    assert count(qwen(max_pixels=1280 * 28 * 28), width, height).embed_tokens == tokens


def test_qwen2_vl_adds_two_tags_to_the_prompt() -> None:
    answer = count(qwen("2"), 224, 224)
    assert (answer.embed_tokens, answer.prompt_tokens) == (64, 66)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (336, 336), (4000, 19), (8000, 6000)])
def test_llava_1_5_takes_576_for_any_size(width: int, height: int) -> None:
    rule = bind("LlavaForConditionalGeneration", LLAVA_CONFIG, LLAVA)
    assert count(rule, width, height).embed_tokens == 576
    assert tightest_cap(rule, [(width, height)], min_pixels=1) is None


def test_a_refusal_names_value_limit_and_way_out() -> None:
    refusal = qwen().count_image(4000, 19)
    assert isinstance(refusal, TokenRefusal)
    assert "4000x19" in refusal.message
    assert "200" in refusal.message
    too_large = qwen().count_image(20000, 10000)
    assert isinstance(too_large, TokenRefusal)
    assert "178,956,970" in too_large.message


@pytest.mark.parametrize(
    ("architecture", "config", "kwargs", "reason"),
    [
        ("QWenLMHeadModel", {}, {}, "ArchitectureDropped"),
        ("Nobody", {}, {}, "UnknownArchitecture"),
        ("InternVLChatModel", INTERNVL_CONFIG, {"max_dynamic_patch": 4}, "StartupFails"),
        ("InternVLChatModel", INTERNVL_CONFIG, {"typo": 4}, "StartupFails"),
        ("InternVLChatModel", {**INTERNVL_CONFIG, "max_dynamic_patch": 10**9}, {}, "InvalidSetting"),
        ("InternVLChatModel", {}, {}, "MissingProcessorValue"),
        ("InternVLChatModel", {**INTERNVL_CONFIG, "downsample_ratio": float("nan")}, {}, "InvalidSetting"),
        (
            "InternVLChatModel",
            {**INTERNVL_CONFIG, "vision_config": {"image_size": 7, "patch_size": 14}},
            {},
            "InvalidSetting",
        ),
        ("LlavaForConditionalGeneration", LLAVA_CONFIG, {"crop_size": 672}, "SettingMismatch"),
        ("LlavaForConditionalGeneration", {}, {}, "UnsupportedVisionTower"),
        ("Qwen2VLForConditionalGeneration", QWEN_CONFIG, {}, "MissingProcessorValue"),
        ("Gemma3ForConditionalGeneration", {}, {}, "MissingProcessorValue"),
        ("Mistral3ForConditionalGeneration", MISTRAL_CONFIG, {}, "MissingProcessorValue"),
        ("MiniCPMV", {"query_num": 64}, {"max_slices": 3}, "UnknownSetting"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    architecture: str, config: dict[str, Any], kwargs: dict[str, Any], reason: str
) -> None:
    refusal = bind_rule(architecture, config, {}, ServerSettings(mm_processor_kwargs=kwargs), "some/model")
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


def test_internvl_is_told_which_flag_works() -> None:
    settings = ServerSettings(mm_processor_kwargs={"max_dynamic_patch": 4})
    refusal = bind_rule("InternVLChatModel", INTERNVL_CONFIG, {}, settings)
    assert isinstance(refusal, TokenRefusal)
    assert """--hf-overrides '{"max_dynamic_patch": 4}'""" in refusal.message


def test_internvl_caps_through_the_flag_that_works() -> None:
    rule = bind("InternVLChatModel", INTERNVL_CONFIG, {})
    cap = cap_settings(rule, [(896, 896)], 448 * 448)
    assert (cap.hf_overrides, cap.mm_processor_kwargs) == ({"max_dynamic_patch": 1}, {})
    other = {**INTERNVL_CONFIG, "llm_config": {"model_type": "internlm2"}}
    cap = cap_settings(bind("InternVLChatModel", other, {}), [(896, 896)], 448 * 448)
    assert (cap.hf_overrides, cap.mm_processor_kwargs) == ({}, {"max_dynamic_patch": 1})


def test_mistral_format_names_what_it_ignores() -> None:
    settings = ServerSettings(mm_processor_kwargs={"size": {"longest_edge": 1024}}, config_format="mistral")
    rule = bind("Mistral3ForConditionalGeneration", MISTRAL_CONFIG, {}, settings)
    assert rule.ignored_settings == ("mm_processor_kwargs.size.longest_edge",)
    assert rule.maximum().engine_tokens == 3025
    assert rule.cap is None


def test_a_huge_limit_still_has_a_maximum() -> None:
    assert qwen(max_pixels=10**9).maximum().engine_tokens > 10**6


def test_tightest_cap_keeps_what_is_asked_and_nothing_more() -> None:
    rule = qwen()
    cap = cap_settings(rule, [(4032, 3024), (640, 480)], 1_000_000)
    limit = cap.mm_processor_kwargs["max_pixels"]
    kept = count(qwen(max_pixels=limit), 4032, 3024).embed_tokens * 784
    less = count(qwen(max_pixels=limit - 784), 4032, 3024).embed_tokens * 784
    assert kept >= 1_000_000 > less


def test_a_floor_in_tokens_keeps_those_tokens_and_nothing_more() -> None:
    capped = tightest_cap(qwen(), [(4032, 3024), (640, 480)], min_tokens=1000)
    assert capped is not None
    assert capped.cap is not None
    assert count(capped, 4032, 3024).embed_tokens >= 1000
    assert count(capped, 640, 480) == count(qwen(), 640, 480)
    assert count(capped.with_cap(capped.cap.value - 784), 4032, 3024).embed_tokens < 1000


def test_tightest_cap_of_small_images_leaves_them_as_they_are() -> None:
    capped = qwen(**cap_settings(qwen(), [(640, 480)], None).mm_processor_kwargs)
    assert count(capped, 640, 480) == count(qwen(), 640, 480)
    assert capped.cap is not None
    assert capped.cap.value == count(capped, 640, 480).embed_tokens * 784


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("do_convert_rgb", True),
        ("do_normalize", False),
        ("do_rescale", False),
        ("image_mean", [0.48145466, 0.4578275, 0.40821073]),
        ("image_std", [0.26862954, 0.26130258, 0.27577711]),
        ("resample", 3),
        ("rescale_factor", 0.00392156862745098),
    ],
)
@pytest.mark.parametrize("scope", [None, "images_kwargs"])
def test_what_pixels_are_worth_is_refused_with_what_to_do(setting: str, value: object, scope: str | None) -> None:
    kwargs = {setting: value} if scope is None else {scope: {setting: value}}
    settings = ServerSettings(mm_processor_kwargs=kwargs)
    refusal = bind_rule("Qwen2_5_VLForConditionalGeneration", QWEN_CONFIG, QWEN, settings)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "UncheckedSetting"
    assert refusal.message == (
        f"mm_processor_kwargs.{setting} = {value!r} says what pixels are worth, and no token count depends on it; "
        "whether the server starts with it is not checked: leave it out to count, and try it on a server"
    )


@pytest.mark.parametrize("value", [True, False])
def test_whether_images_are_resized_is_not_what_pixels_are_worth(value: bool) -> None:  # noqa: FBT001
    settings = ServerSettings(mm_processor_kwargs={"do_resize": value})
    refusal = bind_rule("Qwen2_5_VLForConditionalGeneration", QWEN_CONFIG, QWEN, settings)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "UnknownSetting"


def test_llava_takes_the_mean_of_its_own_file_and_no_other() -> None:
    config = {"vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}}
    processor = {"crop_size": 336, "image_mean": [0.48145466, 0.4578275, 0.40821073]}
    own = ServerSettings(mm_processor_kwargs={"image_mean": [0.48145466, 0.4578275, 0.40821073]})
    assert count(bind("LlavaForConditionalGeneration", config, processor, own), 640, 480).embed_tokens == 576
    other = ServerSettings(mm_processor_kwargs={"image_mean": [0.5, 0.5, 0.5]})
    refusal = bind_rule("LlavaForConditionalGeneration", config, processor, other)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "UncheckedSetting"
