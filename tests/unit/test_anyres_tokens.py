"""LLaVA-NeXT and its kin, Phi-3-vision and Phi-4-multimodal: what is counted, what is refused and why."""

from typing import Any

import pytest

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

SQUARES = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
NEXT_CANVASES = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
CLIP = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}
SIGLIP = {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14}
REMOTE = {"vision_config": SIGLIP, "vision_feature_select_strategy": "full", "image_grid_pinpoints": SQUARES}
SIZE_384 = {"size": {"height": 384, "width": 384}, "crop_size": {"height": 384, "width": 384}}
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "LlavaNextForConditionalGeneration": (
        {"vision_config": CLIP, "image_grid_pinpoints": NEXT_CANVASES},
        {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
    ),
    "LlavaOnevisionForConditionalGeneration": ({"vision_config": SIGLIP}, {}),
    "BeeForConditionalGeneration": (REMOTE, {}),
    "RForConditionalGeneration": (REMOTE, {}),
    "Granite4VisionForConditionalGeneration": (
        {**REMOTE, "vision_config": {**SIGLIP, "patch_size": 16}, "downsample_rate": "4/8"},
        {**SIZE_384, "image_grid_pinpoints": SQUARES},
    ),
    "Phi4MMForCausalLM": ({}, {"dynamic_hd": 36}),
    "Phi3VForCausalLM": ({}, {"num_crops": 16}),
}


def bind(architecture: str, overrides: dict[str, Any] | None = None, **kwargs: Any) -> ImageRule | TokenRefusal:
    config, processor = FILES[architecture]
    return bind_rule(
        architecture, config, processor, ServerSettings(mm_processor_kwargs=kwargs, hf_overrides=overrides or {})
    )


def accept(rule: ImageRule | TokenRefusal) -> ImageRule:
    assert not isinstance(rule, TokenRefusal), rule.message
    return rule


def count(rule: ImageRule | TokenRefusal, width: int, height: int) -> ImageTokens:
    answer = accept(rule).count_image(width, height)
    assert isinstance(answer, ImageTokens), answer
    return answer


@pytest.mark.parametrize(
    ("architecture", "size", "embed", "tiles"),
    [
        # 24 x 24 + 48 rows of 48 patches and their end
        ("LlavaNextForConditionalGeneration", (672, 672), 576 + 48 * 49, 5),
        # one row of two tiles; 336 / 2 of 672 pixels are padding above and below
        ("LlavaNextForConditionalGeneration", (1000, 250), 576 + 18 * 73, 4),
        # 4 x 3 tiles, 82 of 108 rows are left, and the whole is scaled down to nine tiles
        ("LlavaOnevisionForConditionalGeneration", (1153, 944), 8748, 13),
        ("LlavaOnevisionForConditionalGeneration", (1, 1), 729 + 27 * 28, 2),
        ("BeeForConditionalGeneration", (1153, 944), 8748, 13),
        ("RForConditionalGeneration", (1152, 1152), 729 + 81 * 82, 10),
        # patches of 16 pixels: 24 a side, of which the projector makes 12
        ("Granite4VisionForConditionalGeneration", (768, 768), 144 + 24 * 25, 5),
        # 100 of 448 pixels are 8 patches across, 4 tokens
        ("Phi4MMForCausalLM", (100, 448 * 36), 272 + 1 + 16 * 36 * 5, 37),
        ("Phi4MMForCausalLM", (1344, 1344), 272 + 1 + 48 * 49, 10),
        # its processor's own figures for images of 16:1 and 4:3
        ("Phi3VForCausalLM", (50, 8000), 2653, 17),
        ("Phi3VForCausalLM", (1344, 1008), 1921, 13),
    ],
)
def test_an_image_takes_what_the_engine_counts(
    architecture: str, size: tuple[int, int], embed: int, tiles: int
) -> None:
    answer = count(bind(architecture), *size)
    assert (answer.embed_tokens, answer.tiles) == (embed, tiles)
    assert answer.prompt_tokens == answer.placeholder_length == answer.embed_tokens


@pytest.mark.parametrize(
    ("architecture", "kwargs", "reason"),
    [
        ("LlavaNextForConditionalGeneration", {"image_grid_pinpoints": NEXT_CANVASES}, "StartupFails"),
        (
            "LlavaOnevisionForConditionalGeneration",
            {"images_kwargs": {"image_grid_pinpoints": SQUARES}},
            "StartupFails",
        ),
        ("LlavaNextForConditionalGeneration", {"size": {"shortest_edge": 224}}, "SettingMismatch"),
        ("LlavaNextForConditionalGeneration", {"images_kwargs": {"do_pad": False}}, "SettingMismatch"),
        ("BeeForConditionalGeneration", {"do_resize": False}, "SettingMismatch"),
        ("RForConditionalGeneration", {"max_tiles": 4}, "UnknownSetting"),
        ("Granite4VisionForConditionalGeneration", {"images_kwargs": 4}, "InvalidSetting"),
        ("Phi4MMForCausalLM", {"dynamic_hd": 0}, "InvalidSetting"),
        ("Phi4MMForCausalLM", {"dynamic_hd": 501}, "InvalidSetting"),
        ("Phi4MMForCausalLM", {"images_kwargs": {"dynamic_hd": 4}}, "UnknownSetting"),
        ("Phi3VForCausalLM", {"num_crops": 1001}, "InvalidSetting"),
        ("Phi3VForCausalLM", {"num_crop": 4}, "UnknownSetting"),
    ],
)
def test_a_setting_that_would_break_requests_or_the_server_is_refused(
    architecture: str, kwargs: dict[str, Any], reason: str
) -> None:
    refusal = bind(architecture, **kwargs)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


@pytest.mark.parametrize(
    ("architecture", "overrides", "reason"),
    [
        ("LlavaNextForConditionalGeneration", {"image_grid_pinpoints": [[336, 336]]}, "SettingMismatch"),
        ("LlavaNextForConditionalGeneration", {"image_grid_pinpoints": []}, "InvalidSetting"),
        ("LlavaNextForConditionalGeneration", {"image_grid_pinpoints": [[336]]}, "InvalidSetting"),
        ("LlavaNextForConditionalGeneration", {"image_grid_pinpoints": [[336, "672"]]}, "InvalidSetting"),
        ("LlavaNextForConditionalGeneration", {"vision_config": {"image_size": 448}}, "SettingMismatch"),
        ("LlavaNextForConditionalGeneration", {"vision_config": {"patch_size": 32}}, "StartupFails"),
        ("LlavaNextForConditionalGeneration", {"vision_feature_select_strategy": "full"}, "SettingMismatch"),
        ("LlavaNextForConditionalGeneration", {"vision_config": {"model_type": "pixtral"}}, "UnsupportedVisionTower"),
        ("LlavaOnevisionForConditionalGeneration", {"vision_feature_select_strategy": "default"}, "SettingMismatch"),
        ("BeeForConditionalGeneration", {"image_grid_pinpoints": [[384, 400]]}, "SettingMismatch"),
        ("BeeForConditionalGeneration", {"vision_aspect_ratio": "pad"}, "StartupFails"),
        ("BeeForConditionalGeneration", {"vision_aspect_ratio": "anyres_max_0"}, "InvalidSetting"),
        ("BeeForConditionalGeneration", {"vision_config": {"model_type": None}}, "UnsupportedVisionTower"),
        ("RForConditionalGeneration", {"image_grid_pinpoints": None}, "MissingProcessorValue"),
        ("Granite4VisionForConditionalGeneration", {"downsample_rate": None}, "InvalidSetting"),
        ("Granite4VisionForConditionalGeneration", {"downsample_rate": "1/0"}, "InvalidSetting"),
        ("Granite4VisionForConditionalGeneration", {"downsample_rate": "4/7"}, "StartupFails"),
        ("Phi4MMForCausalLM", {"img_processor": "siglip-384"}, "StartupFails"),
        ("Phi3VForCausalLM", {"embd_layer": {"hd_transform_order": "glb_sub"}}, "StartupFails"),
    ],
)
def test_an_override_that_would_break_requests_or_the_server_is_refused(
    architecture: str, overrides: dict[str, Any], reason: str
) -> None:
    refusal = bind(architecture, overrides)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


def test_a_setting_that_repeats_the_checkpoint_changes_nothing() -> None:
    plain = bind("LlavaNextForConditionalGeneration")
    repeated = bind("LlavaNextForConditionalGeneration", size={"shortest_edge": 336})
    assert count(repeated, 900, 700) == count(plain, 900, 700)


def test_a_processor_that_states_no_tiles_cuts_those_of_its_class() -> None:
    config, _ = FILES["LlavaNextForConditionalGeneration"]
    refusal = bind_rule("LlavaNextForConditionalGeneration", config, {})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "SettingMismatch"
    assert "224" in refusal.message


def test_canvases_that_neither_file_states_are_those_of_the_classes() -> None:
    _, processor = FILES["LlavaNextForConditionalGeneration"]
    rule = accept(bind_rule("LlavaNextForConditionalGeneration", {"vision_config": CLIP}, processor))
    assert rule.maximum() == accept(bind("LlavaNextForConditionalGeneration")).maximum()


def test_the_dummy_is_the_first_canvas_of_most_tokens() -> None:
    maximum = accept(bind("LlavaNextForConditionalGeneration")).maximum()
    assert (maximum.dummy_size, maximum.engine_tokens) == ((672, 672), 2928)


def test_onevision_states_its_dummy_although_a_larger_image_exists() -> None:
    maximum = accept(bind("LlavaOnevisionForConditionalGeneration")).maximum()
    assert (maximum.dummy_size, maximum.engine_tokens) == ((1153, 944), 8748)
    assert maximum.true_tokens == 729 + 98 * 82 > maximum.engine_tokens


def test_onevision_reads_no_limit_on_tiles_from_the_configuration() -> None:
    rule = accept(bind("LlavaOnevisionForConditionalGeneration", {"vision_aspect_ratio": "anyres_max_4"}))
    assert rule.ignored_settings == ("hf_overrides.vision_aspect_ratio",)
    assert rule.maximum() == accept(bind("LlavaOnevisionForConditionalGeneration")).maximum()


@pytest.mark.parametrize(
    ("architecture", "overrides"),
    [
        ("RForConditionalGeneration", {}),
        ("BeeForConditionalGeneration", {"vision_aspect_ratio": "anyres_max_16"}),
        ("BeeForConditionalGeneration", {"vision_aspect_ratio": "anyres_max_4"}),
    ],
)
def test_an_image_that_the_model_scales_otherwise_than_the_count_is_refused(
    architecture: str, overrides: dict[str, Any]
) -> None:
    rule = accept(bind(architecture, overrides))
    refusal = rule.count_image(2304, 1536)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "PlaceholderMismatch"
    assert count(rule, 700, 700).tiles == 5
    assert rule.maximum().true_size != rule.maximum().dummy_size


@pytest.mark.parametrize(
    ("kwargs", "size", "accepted"),
    [
        # from rows of the engine: the side that is left has 8, 2 and 24 pixels
        ({"dynamic_hd": 4}, (4000, 19), False),
        ({"dynamic_hd": 1}, (5000, 25), False),
        ({"dynamic_hd": 16}, (4000, 19), True),
        ({}, (9, 448), False),
        ({}, (10, 448), True),
    ],
)
def test_phi4_takes_no_image_thinner_than_ten_pixels_on_its_tiles(
    kwargs: dict[str, Any], size: tuple[int, int], *, accepted: bool
) -> None:
    answer = accept(bind("Phi4MMForCausalLM", **kwargs)).count_image(*size)
    assert isinstance(answer, ImageTokens) is accepted
    assert accepted or (isinstance(answer, TokenRefusal) and answer.reason == "AspectRatioTooExtreme")


def test_phi3_refuses_an_image_of_which_nothing_is_left() -> None:
    refusal = accept(bind("Phi3VForCausalLM")).count_image(5377, 1)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "AspectRatioTooExtreme"
    assert count(bind("Phi3VForCausalLM"), 5376, 1).grid == (16, 1)


def test_phi3_runs_its_tower_on_blank_tiles_as_well() -> None:
    rule = bind("Phi3VForCausalLM", num_crops=4)
    assert count(rule, 336, 336).vit_patches == count(rule, 336, 1344).vit_patches == 5 * 576


@pytest.mark.parametrize(
    ("architecture", "name", "shipped"),
    [("Phi4MMForCausalLM", "dynamic_hd", 36), ("Phi3VForCausalLM", "num_crops", 16)],
)
def test_a_cap_names_the_setting_that_limits_the_tiles(architecture: str, name: str, shipped: int) -> None:
    rule = accept(bind(architecture))
    assert rule.cap is not None
    assert (rule.cap.name, rule.cap.value) == (name, shipped)
    assert rule.with_cap(4).settings.mm_processor_kwargs == {name: 4}


@pytest.mark.parametrize("architecture", [name for name in FILES if not name.startswith("Phi")])
def test_no_setting_caps_the_canvases(architecture: str) -> None:
    assert accept(bind(architecture)).cap is None


@pytest.mark.parametrize("architecture", FILES)
def test_parts_have_names_and_sum_to_the_prompt(architecture: str) -> None:
    rule = accept(bind(architecture))
    answer = count(rule, 1000, 700)
    parts = rule.parts(answer)
    assert sum(part.count * part.tokens for part in parts) == answer.prompt_tokens
    assert all(part.label and part.embedded for part in parts)
