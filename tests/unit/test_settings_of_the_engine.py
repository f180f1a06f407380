"""Settings at the edges of what families take, against the engine's own answers.

Origin: vLLM 0.33.0 with transformers 5.20.2 processing blank images of these sizes on a CPU; the configurations are
those of the checkpoints named, in the parts that count.
"""

from typing import Any

import pytest

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

Model = tuple[str, dict[str, Any], dict[str, Any]]

GEMMA4: Model = (
    "Gemma4ForConditionalGeneration",
    {"vision_config": {"default_output_length": 280}},
    {},
)  # gemma-4-31B-it
INTERNVL = (  # InternVL3-8B-hf
    "InternVLForConditionalGeneration",
    {"vision_config": {"image_size": [448, 448], "patch_size": [14, 14]}, "image_seq_length": 256},
    {"size": {"height": 448, "width": 448}, "crop_to_patches": True, "min_patches": 1, "max_patches": 12},
)
MISTRAL3 = (  # Mistral-Small-3.1-24B-Instruct-2503
    "Mistral3ForConditionalGeneration",
    {"spatial_merge_size": 2, "vision_config": {"image_size": 1540, "patch_size": 14}},
    {"size": {"longest_edge": 1540}, "patch_size": 14, "spatial_merge_size": 2},
)
PIXTRAL = (  # pixtral-12b
    "LlavaForConditionalGeneration",
    {"vision_config": {"model_type": "pixtral", "image_size": 1024, "patch_size": 16}},
    {"size": {"longest_edge": 1024}, "patch_size": 16},
)
MINICPM = ("MiniCPMV4_6ForConditionalGeneration", {"image_size": 448}, {"patch_size": 14, "max_slice_nums": 9})


def bind(model: Model, kwargs: dict[str, Any], overrides: dict[str, Any] | None = None) -> ImageRule | TokenRefusal:
    architecture, config, processor = model
    settings = ServerSettings(mm_processor_kwargs=kwargs, hf_overrides=overrides or {})
    return bind_rule(architecture, config, processor, settings)


def bound(model: Model, kwargs: dict[str, Any], overrides: dict[str, Any] | None = None) -> ImageRule:
    rule = bind(model, kwargs, overrides)
    assert not isinstance(rule, TokenRefusal), rule.message
    return rule


@pytest.mark.parametrize(
    ("model", "kwargs", "size", "embed"),
    [
        (INTERNVL, {"images_kwargs": {"max_patches": 4}}, (8, 950), 1280),
        (INTERNVL, {"images_kwargs": {"max_patches": 4}}, (11, 4), 1024),
        (INTERNVL, {"images_kwargs": {"crop_to_patches": True}}, (57, 510), 2560),
        (MINICPM, {"images_kwargs": {"max_slice_nums": 4}}, (1025, 1023), 320),
        (MINICPM, {"images_kwargs": {"downsample_mode": "4x"}}, (640, 480), 812),
        (MINICPM, {"scale_resolution": 336}, (640, 480), 175),
        (MINICPM, {"scale_resolution": 336}, (1500, 500), 310),
        (GEMMA4, {"max_soft_tokens": 140, "images_kwargs": {"max_soft_tokens": 560}}, (8, 950), 514),
        (GEMMA4, {"max_soft_tokens": 140, "images_kwargs": {"max_soft_tokens": 560}}, (1, 54), 519),
    ],
)
def test_a_setting_that_the_engine_honours_counts(
    model: Model, kwargs: dict[str, Any], size: tuple[int, int], embed: int
) -> None:
    answer = bound(model, kwargs).count_image(*size)
    assert isinstance(answer, ImageTokens)
    assert answer.embed_tokens == embed


def test_a_scoped_limit_on_tiles_does_not_reach_the_dummy_image() -> None:
    scoped = bound(INTERNVL, {"images_kwargs": {"max_patches": 4}}).maximum()
    assert (scoped.engine_tokens, scoped.dummy_size) == (1280, (5376, 448))
    flat = bound(INTERNVL, {"max_patches": 4}).maximum()
    assert (flat.engine_tokens, flat.dummy_size) == (1280, (1792, 448))


@pytest.mark.parametrize(
    ("kwargs", "engine", "dummy"),
    [
        ({"images_kwargs": {"max_slice_nums": 4}}, 648, 312),
        ({"images_kwargs": {"downsample_mode": "4x"}}, 648, 2592),
        ({"scale_resolution": 336}, 360, 360),
    ],
)
def test_scoped_settings_do_not_reach_the_maximum_that_minicpm_works_out(
    kwargs: dict[str, Any], engine: int, dummy: int
) -> None:
    maximum = bound(MINICPM, kwargs).maximum()
    assert (maximum.engine_tokens, maximum.dummy_tokens, maximum.dummy_size) == (engine, dummy, (448, 4032))


def test_slices_that_are_counted_but_not_cut_are_refused() -> None:
    refusal = bind(MINICPM, {"slice_mode": False})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "SettingMismatch"


@pytest.mark.parametrize("model", [MISTRAL3, PIXTRAL])
@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (1868, 1)])
def test_a_strip_of_which_no_pixel_is_left_is_refused(model: Model, size: tuple[int, int]) -> None:
    answer = bound(model, {}).count_image(*size)
    assert isinstance(answer, TokenRefusal)
    assert answer.reason == "AspectRatioTooExtreme"


def test_a_merge_size_that_the_pixels_do_not_follow_is_refused() -> None:
    # The pixels stay whole squares of 28, and the tower would make four features for each token.
    rule = bind(MISTRAL3, {}, {"spatial_merge_size": 1})
    assert isinstance(rule, TokenRefusal)
    assert rule.reason == "SettingMismatch"


def test_a_tile_limit_that_the_processor_cannot_read_is_refused() -> None:
    config = {"vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14}}
    for ratio, refused in [("anyres", True), ("anyres_max_4", False)]:
        rule = bind(("LlavaOnevisionForConditionalGeneration", config, {"vision_aspect_ratio": ratio}), {})
        assert isinstance(rule, TokenRefusal) == refused
        assert not isinstance(rule, TokenRefusal) or rule.reason == "StartupFails"


def test_a_limit_that_leaves_no_pixel_of_a_video_is_refused() -> None:
    # Qwen3-VL-8B-Instruct: the engine divides by zero, even where no video is allowed.
    vision = {"vision_config": {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}}
    files = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}}
    model = ("Qwen3VLForConditionalGeneration", vision, files)
    refusal = bind(model, {"max_pixels": 1024})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "StartupFails"
    bound(model, {"max_pixels": 2048})
    bound(model, {"images_kwargs": {"max_pixels": 1024}})


def test_glm_knows_pixel_limits_as_sizes_alone() -> None:
    files: dict[str, Any] = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
    files |= {"size": {"shortest_edge": 12544, "longest_edge": 9633792}, "processor_class": "Glm4vProcessor"}
    vision = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
    model = ("Glm4vForConditionalGeneration", {"vision_config": vision}, files)  # GLM-4.1V-9B-Thinking
    refusal = bind(model, {"images_kwargs": {"max_pixels": 1003520}})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "StartupFails"
    rule = bound(model, {"min_pixels": 1003520})
    assert rule.ignored_settings == ("mm_processor_kwargs.min_pixels",)
    assert rule.count_image(130, 688) == bound(model, {}).count_image(130, 688)


def test_no_hint_reaches_the_dummy_of_kimi_k2_5() -> None:
    # With the hint 300 x 200 the engine's maximum stays 4225.
    limits = {"in_patch_limit": 16384, "patch_limit_on_one_side": 512, "patch_size": 14, "merge_kernel_size": 2}
    config = {"vision_config": {"patch_size": 14, "merge_kernel_size": [2, 2]}}
    rule = bound(("KimiK25ForConditionalGeneration", config, {"media_proc_cfg": limits}), {})
    assert rule.maximum().engine_tokens == 4225
    assert not rule.hint_lowers_budget


def test_scoped_limits_of_hunyuan_count_but_leave_the_maximum() -> None:
    files = {"patch_size": 16, "merge_size": 2, "min_pixels": 262144, "max_pixels": 4194304}  # HunyuanOCR
    vision = {"vision_config": {"patch_size": 16, "spatial_merge_size": 2}}
    rule = bound(("HunYuanVLForConditionalGeneration", vision, files), {"images_kwargs": {"max_pixels": 1048576}})
    for size, embed, patches in [((1000, 800), 802, 3100), ((1025, 1023), 1058, 4096), ((1, 69), 401, 1064)]:
        answer = rule.count_image(*size)
        assert isinstance(answer, ImageTokens)
        assert (answer.embed_tokens, answer.vit_patches) == (embed, patches)
    assert rule.maximum().engine_tokens == 4162


def test_the_dummy_of_images_that_the_file_does_not_cut_is_the_first_grid_listed() -> None:
    architecture, config, files = INTERNVL
    uncut = (architecture, config, {**files, "crop_to_patches": False})
    maximum = bound(uncut, {"min_patches": 4}).maximum()
    assert (maximum.engine_tokens, maximum.dummy_size) == (1280, (896, 896))
    assert bound(uncut, {}).maximum().dummy_size == (448, 448)


def test_a_pixel_limit_of_null_is_refused() -> None:
    vision = {"vision_config": {"patch_size": 14, "spatial_merge_size": 2}}  # Qwen2.5-VL-7B-Instruct
    files = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
    refusal = bind(("Qwen2_5_VLForConditionalGeneration", vision, files), {"max_pixels": None})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "StartupFails"


def test_a_size_that_gemma3_scales_to_without_counting_is_refused() -> None:
    config = {"mm_tokens_per_image": 256, "vision_config": {"image_size": 896, "patch_size": 14}}  # gemma-3-27b-it
    files = {"image_seq_length": 256, "size": {"height": 896, "width": 896}}
    refusal = bind(("Gemma3ForConditionalGeneration", config, files), {"size": {"height": 448, "width": 448}})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "SettingMismatch"
