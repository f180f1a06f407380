"""Cosmos3 Edge, Dots3 Note, Kanana-V and MiMo Omni: where they keep their values and what their thin images do."""

from typing import Any

import pytest

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

EDGE = "Cosmos3EdgeForConditionalGeneration"
NOTE = "Dots3NoteForCausalLM"
MIMO = "MiMoV2OmniForCausalLM"
KANANA = "KananaVForConditionalGeneration"
KANANA_VISION = {"vision_config": {"patch_size": 14, "spatial_merge_size": 2}}
VISION = {"vision_config": {"patch_size": 16, "spatial_merge_size": 2}}
EDGE_FILES = {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "merge_size": 2}
NOTE_VALUES = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}


def bind(
    architecture: str, config: dict[str, Any], processor: dict[str, Any], **kwargs: Any
) -> ImageRule | TokenRefusal:
    return bind_rule(architecture, config, processor, ServerSettings(mm_processor_kwargs=kwargs), "some/model")


def rule(architecture: str, config: dict[str, Any], processor: dict[str, Any], **kwargs: Any) -> ImageRule:
    bound = bind(architecture, config, processor, **kwargs)
    assert isinstance(bound, ImageRule), bound
    return bound


def count(bound: ImageRule, width: int, height: int) -> ImageTokens:
    answer = bound.count_image(width, height)
    assert isinstance(answer, ImageTokens), answer
    return answer


def reason(answer: object) -> str:
    assert isinstance(answer, TokenRefusal), answer
    return answer.reason


def test_cosmos3_edge_scales_a_thin_side_up_to_one_unit_before_it_compares() -> None:
    bound = rule(EDGE, VISION, {**EDGE_FILES, "size": {"longest_edge": 16777216, "shortest_edge": 4096}})
    # 640 x 10 is 20 x 0 units for Qwen; here the ten pixels become 32, and the whole image grows with them.
    assert count(bound, 640, 10).grid == (64, 1)
    assert count(bound, 12, 2).grid == (6, 1)
    assert reason(bound.count_image(4000, 19)) == "AspectRatioTooExtreme"
    assert count(bound, 1024, 1024).embed_tokens == 1024
    assert bound.maximum().engine_tokens == 16384


def test_cosmos3_edge_caps_with_max_pixels() -> None:
    assert count(rule(EDGE, VISION, EDGE_FILES, max_pixels=1310720), 4000, 3000).embed_tokens == 1230
    assert reason(bind(EDGE, VISION, EDGE_FILES, size={"longest_edge": 1310720})) == "UnknownSetting"


def test_dots3_note_counts_its_tags_inside_the_placeholder() -> None:
    answer = count(rule(NOTE, {}, {"vision_config": NOTE_VALUES}), 1024, 1024)
    assert (answer.embed_tokens, answer.placeholder_length, answer.prompt_tokens) == (1369, 1371, 1371)


def test_dots3_note_turns_away_a_side_below_a_quarter_unit() -> None:
    bound = rule(NOTE, {}, {"vision_config": NOTE_VALUES})
    assert reason(bound.count_image(100, 6)) == "ImageTooThin"
    assert count(bound, 100, 7).grid == (4, 1)


def test_dots3_note_has_limits_of_the_detail_that_its_budget_ignores() -> None:
    values = {**NOTE_VALUES, "image_details": {"auto": {"max_pixels": 3211264}}}
    bound = rule(NOTE, {}, {"vision_config": values})
    maximum = bound.maximum()
    assert (maximum.engine_tokens, maximum.true_tokens, maximum.dummy_tokens) == (16384, 4096, 4096)


def test_dots3_note_cannot_start_with_a_limit_that_forms_no_rectangle() -> None:
    values = {**NOTE_VALUES, "max_pixels": 16381 * 784}
    assert reason(bind(NOTE, {}, {"vision_config": values})) == "StartupFails"


def test_mimo_omni_lifts_a_thin_image_whatever_its_length() -> None:
    bound = rule(MIMO, VISION, {})
    assert count(bound, 4000, 10).grid == (400, 1)
    assert reason(bound.count_image(10_000, 40)) == "AspectRatioTooExtreme"
    # 5,000 units in a row are above the limit, and shrinking leaves nothing of the row.
    assert reason(bound.count_image(5000, 1)) == "ImageTooThin"
    assert bound.maximum().true_tokens == 4096


def test_mimo_omni_reads_its_limits_from_the_configuration() -> None:
    config = {**VISION, "processor_config": {"image_min_pixels": 1024, "image_max_pixels": 1310720}}
    bound = rule(MIMO, config, {})
    assert bound.maximum().engine_tokens == 1280
    assert count(bound, 1, 1).embed_tokens == 1


def test_kanana_lifts_a_thin_image_and_then_checks_its_length() -> None:
    bound = rule(KANANA, KANANA_VISION, {**NOTE_VALUES, "max_pixels": 1254400})
    answer = count(bound, 280, 14)
    assert (answer.grid, answer.prompt_tokens) == ((20, 1), 20)
    assert reason(bound.count_image(4000, 14)) == "AspectRatioTooExtreme"
    maximum = bound.maximum()
    assert (maximum.engine_tokens, maximum.true_tokens, maximum.dummy_size) == (1600, 1600, (9999, 9999))


@pytest.mark.parametrize(
    ("architecture", "config", "processor"),
    [(KANANA, KANANA_VISION, NOTE_VALUES), (NOTE, {}, {"vision_config": NOTE_VALUES}), (MIMO, VISION, {})],
)
def test_a_setting_that_does_not_reach_both_pixels_and_budget_is_refused(
    architecture: str, config: dict[str, Any], processor: dict[str, Any]
) -> None:
    assert reason(bind(architecture, config, processor, max_pixels=1003520)) == "SettingMismatch"
    assert rule(architecture, config, processor).cap is None


@pytest.mark.parametrize(("architecture", "wanted"), [(EDGE, "merge_size"), (NOTE, "merge_size"), (MIMO, "vision")])
def test_missing_values_are_named(architecture: str, wanted: str) -> None:
    refusal = bind(architecture, {}, {})
    assert reason(refusal) == "MissingProcessorValue"
    assert isinstance(refusal, TokenRefusal)
    assert wanted in refusal.message
