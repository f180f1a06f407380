"""Families that took over Qwen's grid: where they keep their values, and which settings reach their images."""

from typing import Any

import pytest

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

QWEN2 = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}
QWEN3 = {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "merge_size": 2}
VISION2 = {"patch_size": 14, "spatial_merge_size": 2}
VISION3 = {"patch_size": 16, "spatial_merge_size": 2}

LIKE_QWEN2 = [
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "DotsOCRForCausalLM",
    "CohereCompassForConditionalGeneration",
    "Exaone4_5_ForConditionalGeneration",
    "JinaVLForRanking",
]
LIKE_QWEN3 = [
    "Qwen3VLForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
    "Cosmos3ForConditionalGeneration",
    "InternS1ProForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
    "ColQwen3",
    "ColQwen3_5",
    "OpsColQwen3Model",
    "Qwen3VLNemotronEmbedModel",
]
OMNI = ["Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration"]


def bind(
    architecture: str, config: dict[str, Any], processor: dict[str, Any], **settings: Any
) -> ImageRule | TokenRefusal:
    return bind_rule(architecture, config, processor, ServerSettings(**settings), "some/model")


def count(rule: ImageRule | TokenRefusal, width: int, height: int) -> ImageTokens:
    assert isinstance(rule, ImageRule), rule
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens), answer
    return answer


def reason(answer: object) -> str:
    assert isinstance(answer, TokenRefusal), answer
    return answer.reason


@pytest.mark.parametrize("architecture", LIKE_QWEN2)
def test_a_family_like_qwen2_vl_needs_both_edges_of_a_size(architecture: str) -> None:
    config = {"vision_config": VISION2}
    answer = count(bind(architecture, config, QWEN2), 1024, 1024)
    assert (answer.embed_tokens, answer.prompt_tokens) == (1369, 1371)
    half = {"size": {"longest_edge": 1003520}}
    assert reason(bind(architecture, config, QWEN2, mm_processor_kwargs=half)) == "StartupFails"


@pytest.mark.parametrize("architecture", LIKE_QWEN3)
def test_a_family_like_qwen3_vl_completes_a_size_from_its_file(architecture: str) -> None:
    config = {"vision_config": VISION3}
    assert count(bind(architecture, config, QWEN3), 1024, 1024).embed_tokens == 1024
    half = {"size": {"longest_edge": 262144}}
    capped = bind(architecture, config, QWEN3, mm_processor_kwargs=half)
    assert count(capped, 1024, 1024).embed_tokens == 256
    assert count(capped, 1, 1).embed_tokens == 64


@pytest.mark.parametrize("architecture", OMNI)
def test_an_omni_model_keeps_its_tower_below_the_thinker(architecture: str) -> None:
    config = {"thinker_config": {"vision_config": VISION2}}
    assert count(bind(architecture, config, QWEN2), 1024, 1024).embed_tokens == 1369
    wrong = {"thinker_config": {"vision_config": {"patch_size": 16}}}
    assert reason(bind(architecture, config, QWEN2, hf_overrides=wrong)) == "SettingMismatch"


def test_opencua_has_one_placeholder_and_no_setting_that_reaches_its_images() -> None:
    config = {"vision_config": VISION2}
    rule = bind("OpenCUAForConditionalGeneration", config, QWEN2)
    answer = count(rule, 1024, 1024)
    assert answer.prompt_tokens == answer.embed_tokens == 1369
    assert isinstance(rule, ImageRule)
    assert rule.cap is None
    cap = {"max_pixels": 1003520}
    refusal = bind("OpenCUAForConditionalGeneration", config, QWEN2, mm_processor_kwargs=cap)
    assert reason(refusal) == "SettingMismatch"


def test_llava_onevision2_profiles_with_an_image_that_others_exceed() -> None:
    bound = bind("LlavaOnevision2ForConditionalGeneration", {"vision_config": VISION2}, QWEN2)
    assert isinstance(bound, ImageRule)
    maximum = bound.maximum()
    assert (maximum.engine_tokens, maximum.dummy_size) == (4096, (1792, 1792))
    assert maximum.true_tokens == 16384
    assert bound.cap is None


def test_a_limit_above_what_is_decoded_is_bound_by_the_decoder() -> None:
    rule = bind(LIKE_QWEN2[0], {"vision_config": VISION2}, {**QWEN2, "max_pixels": 10**9})
    assert isinstance(rule, ImageRule)
    maximum = rule.maximum()
    assert count(rule, *maximum.true_size).embed_tokens == maximum.true_tokens
    # The engine makes its own image without decoding it, so its figure is above every real one.
    assert maximum.true_tokens == 231_480 < maximum.engine_tokens
    assert isinstance(rule.count_image(*maximum.dummy_size), TokenRefusal)


def test_a_strip_below_a_small_limit_takes_more_than_the_limit_holds() -> None:
    rule = bind(LIKE_QWEN2[0], {"vision_config": VISION2}, {**QWEN2, "max_pixels": 100_000})
    assert isinstance(rule, ImageRule)
    assert rule.maximum().true_tokens == 159 > 100_000 // 784
    assert count(rule, 3600, 18).embed_tokens == 159
