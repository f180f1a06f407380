"""Images, settings and files of the families that give an overview and a grid, by value."""

import json
from typing import Any

import pytest

from vlm_operator.catalogue.load import find_model
from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.types import Cap

MODELS = {
    "DeepSeek-VL2": "deepseek-ai/deepseek-vl2-tiny",
    "DeepSeek-OCR": "deepseek-ai/DeepSeek-OCR",
    "DeepSeek-OCR-2": "deepseek-ai/DeepSeek-OCR-2",
    "Unlimited-OCR": "baidu/Unlimited-OCR",
    "Ovis2": "AIDC-AI/Ovis2-4B",
    "Ovis2.5": "AIDC-AI/Ovis2.5-9B",
    "Step3": "stepfun-ai/step3",
    "Molmo": "allenai/Molmo-7B-D-0924",
    "Molmo2": "allenai/Molmo2-8B",
    "MiniCPM-V 2.6": "openbmb/MiniCPM-V-2_6",
    "MiniCPM-o": "openbmb/MiniCPM-o-2_6",
    "MiniCPM-V 4.6": "openbmb/MiniCPM-V-4_6",
}


def bind(
    family: str,
    kwargs: dict[str, Any] | None = None,
    *,
    architecture: str = "",
    config: dict[str, Any] | None = None,
    processor: dict[str, Any] | None = None,
    hf_overrides: dict[str, Any] | None = None,
) -> ImageRule | TokenRefusal:
    """Bind the rule of a checkpoint; ``config`` and ``processor`` are laid on its files."""
    model = find_model(MODELS[family])
    settings = ServerSettings(mm_processor_kwargs=kwargs or {}, hf_overrides=hf_overrides or {})
    return bind_rule(
        architecture or model.architecture,
        {**model.config, **(config or {})},
        {**model.processor, **(processor or {})},
        settings,
        model.id,
    )


def rule_of(family: str, kwargs: dict[str, Any] | None = None, **changes: Any) -> ImageRule:
    rule = bind(family, kwargs, **changes)
    assert not isinstance(rule, TokenRefusal), rule.message
    return rule


def count(rule: ImageRule, width: int, height: int) -> ImageTokens:
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens), answer.message
    return answer


@pytest.mark.parametrize(
    ("family", "kwargs", "reason"),
    [
        ("DeepSeek-VL2", {"candidate_resolutions": [[384, 384]]}, "StartupFails"),
        ("DeepSeek-OCR", {"crop_mode": False}, "SettingMismatch"),
        ("DeepSeek-OCR", {"max_crops": 9}, "SettingMismatch"),
        ("DeepSeek-OCR-2", {"crop_mode": False}, "SettingMismatch"),
        ("Unlimited-OCR", {"crop_mode": 1}, "InvalidSetting"),
        ("Ovis2", {"max_partition": 0}, "InvalidSetting"),
        ("Ovis2", {"max_partition": 101}, "InvalidSetting"),
        ("Ovis2", {"covering_threshold": "much"}, "InvalidSetting"),
        ("Ovis2.5", {"images_kwargs": {"max_pixels": 802816}}, "StartupFails"),
        ("Molmo2", {"images_kwargs": {"max_crops": 4}}, "StartupFails"),
        ("Molmo2", {"max_crops": 201}, "InvalidSetting"),
        ("MiniCPM-V 2.6", {"max_slice_nums": "all"}, "InvalidSetting"),
        ("MiniCPM-V 4.6", {"downsample_mode": "2x"}, "InvalidSetting"),
    ],
)
def test_a_setting_that_breaks_the_server_or_its_requests_is_refused(
    family: str, kwargs: dict[str, Any], reason: str
) -> None:
    refusal = bind(family, kwargs)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


@pytest.mark.parametrize("family", list(MODELS))
def test_a_misspelt_setting_is_refused(family: str) -> None:
    refusal = bind(family, {"max_slices": 4})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "UnknownSetting"


@pytest.mark.parametrize(
    ("family", "kwargs", "ignored"),
    [
        ("DeepSeek-VL2", {"cropping": False}, "mm_processor_kwargs.cropping"),
        ("DeepSeek-OCR", {"base_size": 1280, "max_crops": 6}, "mm_processor_kwargs.base_size"),
        ("Unlimited-OCR", {"max_crops": 9, "crop_mode": True}, "mm_processor_kwargs.max_crops"),
        ("Ovis2.5", {"max_pixels": 802816}, "mm_processor_kwargs.max_pixels"),
        ("Step3", {"enable_patch": False}, "mm_processor_kwargs.enable_patch"),
        ("MiniCPM-V 4.6", {"use_image_id": False}, "mm_processor_kwargs.use_image_id"),
    ],
)
def test_a_setting_that_the_engine_ignores_is_named_and_changes_nothing(
    family: str, kwargs: dict[str, Any], ignored: str
) -> None:
    rule = rule_of(family, kwargs)
    assert rule.ignored_settings == (ignored,)
    assert rule.count_image(1654, 2339) == rule_of(family).count_image(1654, 2339)


@pytest.mark.parametrize(
    ("family", "width", "height"),
    [
        ("Ovis2", 449, 1),
        ("Ovis2.5", 1, 4000),
        ("Step3", 100_000, 32),
    ],
)
def test_an_image_whose_short_side_would_vanish_is_refused(family: str, width: int, height: int) -> None:
    refusal = rule_of(family).count_image(width, height)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "AspectRatioTooExtreme"
    assert "crop" in refusal.message


@pytest.mark.parametrize(
    ("family", "width", "height", "tokens"),
    [
        ("DeepSeek-VL2", 767, 1, 617),
        ("DeepSeek-OCR", 1, 2047, 933),
        ("DeepSeek-OCR", 5000, 1, 883),  # nothing of it is left in the base view, which pillow 13 pads all the same
        ("Ovis2", 448, 1, 259),
        ("Ovis2.5", 1, 3136, 3138),
        ("Step3", 96_768, 32, 245_113),
    ],
)
def test_the_thinnest_image_that_is_left_is_counted(family: str, width: int, height: int, tokens: int) -> None:
    assert count(rule_of(family), width, height).embed_tokens == tokens


@pytest.mark.parametrize(
    ("family", "true_tokens", "engine_tokens"),
    [
        ("DeepSeek-VL2", 2101, 2101),
        ("DeepSeek-OCR", 933, 693),
        ("DeepSeek-OCR-2", 1121, 833),
        ("Unlimited-OCR", 3793, 3793),
        ("Ovis2", 2571, 2571),
        ("Ovis2.5", 3138, 3138),
        ("Step3", 245_113, 3164),
        ("Molmo", 1344, 1344),
        ("Molmo2", 1414, 1414),
        ("MiniCPM-V 2.6", 640, 640),
        ("MiniCPM-V 4.6", 428_077, 648),
    ],
)
def test_the_largest_image_and_what_the_engine_takes_for_it(family: str, true_tokens: int, engine_tokens: int) -> None:
    maximum = rule_of(family).maximum()
    assert (maximum.true_tokens, maximum.engine_tokens) == (true_tokens, engine_tokens)


def test_the_candidates_of_the_configuration_only_change_the_dummy() -> None:
    shipped = rule_of("DeepSeek-VL2")
    fewer = rule_of("DeepSeek-VL2", hf_overrides={"candidate_resolutions": [[384, 384], [384, 768]]})
    assert fewer.count_image(4000, 3000) == shipped.count_image(4000, 3000)
    assert fewer.maximum().dummy_size == (768, 384)
    assert fewer.maximum().true_tokens == shipped.maximum().true_tokens


@pytest.mark.parametrize("family", ["Unlimited-OCR", "Step3"])
def test_a_switch_is_a_cap_that_leaves_the_overview(family: str) -> None:
    rule = rule_of(family)
    assert isinstance(rule.cap, Cap)
    assert list(rule.cap.tighter) == [False]
    off = rule.with_cap(rule.cap.tighter[0])
    assert off.maximum().true_tokens == count(off, 4000, 3000).embed_tokens < count(rule, 4000, 3000).embed_tokens
    assert off.cap is not None
    assert not off.cap.tighter
    assert off.kept_pixels(4000, 3000) < rule.kept_pixels(4000, 3000)
    again = bind(family, dict(off.settings.mm_processor_kwargs), hf_overrides=dict(off.settings.hf_overrides))
    assert isinstance(again, ImageRule)
    assert again.count_image(4000, 3000) == off.count_image(4000, 3000)


def test_ovis_reads_the_layout_of_the_original_and_of_the_converted_files() -> None:
    original = {
        "visual_tokenizer_config": {
            "hidden_stride": 2,
            "backbone_config": {"image_size": 448, "patch_size": 14},
        }
    }
    rule = bind_rule("Ovis", original, {"size": {"shortest_edge": 448}})
    assert isinstance(rule, ImageRule)
    assert rule.count_image(1366, 768) == rule_of("Ovis2").count_image(1366, 768)


@pytest.mark.parametrize(
    ("config", "processor", "reason"),
    [
        ({"hidden_stride": 3}, {}, "StartupFails"),
        ({}, {"size": {"height": 448, "width": 896}}, "StartupFails"),
        ({"image_size": 896}, {}, "SettingMismatch"),
    ],
)
def test_ovis_files_that_disagree_are_refused(config: dict[str, Any], processor: dict[str, Any], reason: str) -> None:
    refusal = bind("Ovis2", hf_overrides={"vision_config": config}, processor=processor)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


@pytest.mark.parametrize(
    ("family", "missing"),
    [
        ("DeepSeek-VL2", "candidate_resolutions"),
        ("Molmo", "max_crops"),
        ("Molmo", "base_image_input_size"),
        ("Molmo", "overlap_margins"),
    ],
)
def test_a_missing_processor_value_is_refused_by_name(family: str, missing: str) -> None:
    refusal = bind(family, processor={missing: None})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "MissingProcessorValue"
    assert missing in refusal.message


@pytest.mark.parametrize("architecture", ["StepVLForConditionalGeneration", "Step3p7ForConditionalGeneration"])
def test_successors_of_step3_count_alike_and_want_the_tower_in_the_configuration(architecture: str) -> None:
    same = rule_of("Step3", architecture=architecture)
    assert same.count_image(1654, 2339) == rule_of("Step3").count_image(1654, 2339)
    text_alone = bind("Step3", architecture=architecture, config={"vision_config": None})
    assert isinstance(text_alone, TokenRefusal)
    assert text_alone.reason == "MissingProcessorValue"


def test_molmo2_leaves_row_ends_out_where_its_file_says_so() -> None:
    shipped, bare = rule_of("Molmo2"), rule_of("Molmo2", processor={"use_single_crop_col_tokens": False})
    overview_rows = 14
    assert count(shipped, 500, 500).embed_tokens - count(bare, 500, 500).embed_tokens == overview_rows


@pytest.mark.parametrize(
    ("version", "marks"),
    [
        (2.6, 7 * 2 + 3 + 1),  # tags of seven views, image id, one break between two rows
        (2.5, 7 * 2 + 2 + 1),  # no image id, but all slices have a start and an end
        (None, 7 * 2 + 2 + 1),
    ],
)
def test_minicpm_v_marks_its_slices_as_its_version_does(version: float | None, marks: int) -> None:
    rule = rule_of("MiniCPM-V 2.6", config={"version": version, "query_num": 96}, processor={"image_feature_size": 96})
    answer = count(rule, 1366, 768)
    assert answer.embed_tokens == 7 * 96
    assert answer.prompt_tokens - answer.embed_tokens == marks
    assert sum(part.count * part.tokens for part in rule.parts(answer)) == answer.prompt_tokens


@pytest.mark.parametrize(("family", "version"), [("MiniCPM-V 2.6", 3.0), ("MiniCPM-o", 4.0)])
def test_a_version_of_minicpm_that_the_engine_does_not_serve_is_refused(family: str, version: float) -> None:
    refusal = bind(family, config={"version": version})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "StartupFails"
    assert "2.6" in refusal.message


@pytest.mark.parametrize(
    ("kwargs", "width", "height", "tokens", "engine_tokens"),
    [
        ({}, 1654, 2339, 700, 648),
        ({"max_slice_nums": 4}, 1654, 2339, 350, 312),
        ({"max_slice_nums": 16}, 2048, 2048, 1088, 648),
        ({"downsample_mode": "4x"}, 1654, 2339, 2800, 2592),
    ],
)
def test_slices_of_minicpm_v_4_6_have_tokens_by_their_shape(
    kwargs: dict[str, Any], width: int, height: int, tokens: int, engine_tokens: int
) -> None:
    rule = rule_of("MiniCPM-V 4.6", kwargs, config={"image_size": 448})
    assert count(rule, width, height).embed_tokens == tokens
    assert rule.maximum().engine_tokens == engine_tokens


def test_the_dummy_of_minicpm_v_4_7_follows_the_setting() -> None:
    architecture = "MiniCPMV4_7ForConditionalGeneration"
    side = {"image_size": 448}
    rule = rule_of("MiniCPM-V 4.6", {"max_slice_nums": 16}, architecture=architecture, config=side)
    assert rule.maximum().dummy_size == (448, 448 * 16)
    assert rule.count_image(2048, 2048) == rule_of("MiniCPM-V 4.6", {"max_slice_nums": 16}).count_image(2048, 2048)
    torn = bind("MiniCPM-V 4.6", architecture=architecture, processor={"max_slice_nums": 4})
    assert isinstance(torn, TokenRefusal)
    assert torn.reason == "SettingMismatch"
    assert json.dumps({"max_slice_nums": 4}) in torn.message


def test_minicpm_v_4_6_without_slice_mode_is_refused() -> None:
    refusal = bind("MiniCPM-V 4.6", processor={"slice_mode": False})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "SettingMismatch"
