"""Families whose images are brought within a number of tokens or patches: counts, settings, budgets and refusals.

The grids were computed with the resize functions of the engine and of transformers themselves.
"""

from typing import Any

import pytest

from tests.property.families_without_rows import FAMILIES
from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

Size = tuple[int, int]


def bind(family: str, overrides: dict[str, Any] | None = None, **kwargs: Any) -> ImageRule | TokenRefusal:
    architecture, config, processor = FAMILIES[family]
    settings = ServerSettings(mm_processor_kwargs=kwargs, hf_overrides=overrides or {})
    return bind_rule(architecture, config, processor, settings, "some/model")


def bound(family: str, overrides: dict[str, Any] | None = None, **kwargs: Any) -> ImageRule:
    rule = bind(family, overrides, **kwargs)
    assert isinstance(rule, ImageRule), rule
    return rule


def count(rule: ImageRule, size: Size) -> ImageTokens:
    answer = rule.count_image(*size)
    assert isinstance(answer, ImageTokens), answer
    return answer


def reason(answer: object) -> str:
    assert isinstance(answer, TokenRefusal), answer
    return answer.reason


@pytest.mark.parametrize(
    ("family", "grids"),
    [
        (
            "glm5_next",
            {(1, 1): (8, 8), (640, 480): (24, 18), (4032, 3024): (102, 78), (5000, 25): (180, 2), (30, 4000): (2, 144)},
        ),
        (
            "muse_glimmer",
            {(1, 1): (1, 1), (640, 480): (23, 17), (700, 700): (25, 25), (4032, 3024): (73, 55), (30, 4000): (1, 142)},
        ),
        (
            "muse_spark",
            {(1, 1): (1, 1), (5, 100): (1, 5), (1024, 1024): (37, 37), (4032, 3024): (73, 55), (28, 200000): (1, 4096)},
        ),
        (
            "isaac",
            {
                (1, 1): (4, 4),
                (640, 480): (20, 15),
                (1024, 1024): (32, 32),
                (4032, 3024): (45, 34),
                (30, 4000): (1, 125),
            },
        ),
        (
            "phi4_siglip",
            {
                (1, 1): (7, 7),
                (1000, 700): (62, 43),
                (1024, 1024): (60, 60),
                (4032, 3024): (69, 52),
                (30, 4000): (1, 134),
            },
        ),
        (
            "deepseek_v4",
            {(1, 1): (13, 13), (640, 480): (16, 12), (4032, 3024): (35, 26), (5000, 25): (37, 5), (30, 4000): (2, 150)},
        ),
        ("deepseek_v41", {(1, 1): (13, 13), (640, 480): (16, 12), (1024, 1024): (25, 25), (4032, 3024): (36, 27)}),
        ("inkling", {(1, 1): (1, 1), (640, 480): (33, 24), (1024, 1024): (52, 52), (4000, 3000): (101, 75)}),
        ("alpamayo2", {(640, 480): (16, 12), (1024, 1024): (13, 13), (4032, 3024): (16, 12)}),
        (
            "minimax_m3_long_side",
            {(200, 1): (800, 4), (640, 480): (23, 17), (4032, 3024): (72, 54), (2000, 50): (160, 4)},
        ),
        ("d3", {(640, 480): (20, 15), (1024, 1024): (32, 32), (4032, 3024): (46, 34)}),
    ],
)
def test_the_grid_is_the_engines(family: str, grids: dict[Size, tuple[int, int]]) -> None:
    rule = bound(family)
    for size, grid in grids.items():
        assert count(rule, size).grid == grid, size


@pytest.mark.parametrize(
    ("family", "size", "embed", "placeholder", "prompt", "patches"),
    [
        ("glm5_next", (4032, 3024), 7956, 7956, 7958, 31824),
        ("muse_glimmer", (640, 480), 391, 393, 393, 1564),
        ("muse_spark", (640, 480), 391, 393, 393, 1564),
        ("isaac", (640, 480), 300, 300, 300, 1200),
        ("phi4_siglip", (640, 480), 1200, 1200, 1200, 1200),
        # 12 x 17 tokens of grid and row ends, start and end; three more align an image that stands first.
        ("deepseek_v4", (640, 480), 192, 209, 209, 1610),
        # An odd number of rows has one more of padding.
        ("deepseek_v4", (1024, 1024), 625, 681, 681, 5476),
        ("deepseek_v41", (640, 480), 206, 206, 206, 1610),
        ("inkling", (640, 480), 792, 793, 793, 792),
        ("bagel", (640, 480), 4900, 4900, 4900, 4900),
        ("minimax_m3", (640, 480), 391, 393, 393, 1564),
        ("minimax_m3_long_side", (4032, 3024), 3888, 3890, 3890, 15552),
    ],
)
def test_each_figure_of_an_image(
    family: str, size: Size, embed: int, placeholder: int, prompt: int, patches: int
) -> None:
    answer = count(bound(family), size)
    assert answer[:4] == (embed, placeholder, prompt, patches)


@pytest.mark.parametrize(
    ("family", "engine", "true", "dummy_size", "dummy_tokens"),
    [
        ("glm5_next", 8000, 8000, (2800, 2240), 8000),
        ("muse_glimmer", 4096, 4096, (1792, 1792), 4096),
        ("muse_spark", 4096, 4096, (448, 448), 256),
        # 6,144 patches are no square, so the square dummy stays below them.
        ("isaac", 1536, 1536, (1248, 1248), 1521),
        ("phi4_siglip", 3600, 3600, (960, 960), 3600),
        # The engine adds the alignment once more to a limit that holds it.
        ("deepseek_v4", 1027, 996, (3486, 504), 996),
        ("deepseek_v41", 1024, 1024, (42882, 42), 1024),
        ("bagel", 4900, 4900, (980, 980), 4900),
        # A strip of one pixel is enlarged to the lower limit, and beyond the upper one.
        ("alpamayo2", 192, 320, (512, 384), 192),
        ("minimax_m3_long_side", 5184, 5184, (2016, 2016), 5184),
        ("d3", 1600, 1600, (1280, 1280), 1600),
    ],
)
def test_what_the_engine_reserves_and_draws(
    family: str, engine: int, true: int, dummy_size: Size, dummy_tokens: int
) -> None:
    maximum = bound(family).maximum()
    assert (maximum.engine_tokens, maximum.true_tokens) == (engine, true)
    assert (maximum.dummy_size, maximum.dummy_tokens) == (dummy_size, dummy_tokens)


@pytest.mark.parametrize(
    ("family", "kwargs", "tokens", "engine"),
    [
        ("glm5_next", {"max_image_tokens": 500}, 1976, 2000),
        ("glm5_next", {"images_kwargs": {"max_image_tokens": 500}}, 1976, 8000),
        ("glm5_next", {"max_pixels": 500 * 2 * 56**2}, 7956, 2000),
        ("muse_glimmer", {"max_image_tokens": 1024}, 972, 1024),
        ("muse_glimmer", {"images_kwargs": {"max_image_tokens": 1024}}, 972, 4096),
        ("muse_spark", {"max_image_tokens": 1024}, 4015, 4096),
        ("isaac", {"max_num_patches": 1024}, 252, 1536),
        ("isaac", {"images_kwargs": {"max_num_patches": 1024}}, 252, 1536),
        ("minimax_m3", {"max_pixels": 1003520}, 1230, 1225),
        ("minimax_m3", {"max_long_side_pixel": 1000}, 972, 1225),
        ("d3", {"max_pixels": 409600}, 391, 400),
        ("alpamayo2", {"max_pixels": 409600}, 391, 400),
    ],
)
def test_a_setting_moves_images_and_budget_or_one_of_them(
    family: str, kwargs: dict[str, Any], tokens: int, engine: int
) -> None:
    rule = bound(family, **kwargs)
    assert count(rule, (4032, 3024)).embed_tokens == tokens
    assert rule.maximum().engine_tokens == engine


def test_a_setting_that_reaches_nothing_is_named() -> None:
    assert bound("glm5_next", max_pixels=10**6).ignored_settings == ("mm_processor_kwargs.max_pixels",)
    assert bound("muse_spark", max_image_tokens=9).ignored_settings == ("mm_processor_kwargs.max_image_tokens",)


@pytest.mark.parametrize("family", ["deepseek_v4", "deepseek_v41"])
def test_deepseek_is_capped_by_an_override(family: str) -> None:
    rule = bound(family, {"vision_max_n_token": 512})
    assert count(rule, (4032, 3024)).embed_tokens < count(bound(family), (4032, 3024)).embed_tokens
    assert bound(family).with_cap(512).settings == rule.settings
    assert reason(bind(family, max_pixels=1)) == "StartupFails"


@pytest.mark.parametrize(
    ("family", "overrides", "kwargs", "wanted"),
    [
        ("deepseek_v41", {"vision_config": {"max_image_tokens": 512}}, {}, "SettingMismatch"),
        ("deepseek_v4", {"vision_max_n_token": 100}, {}, "InvalidSetting"),
        ("phi4_siglip", {"max_num_patches": 900}, {}, "SettingMismatch"),
        ("phi4_siglip", {}, {"max_num_patches": 900}, "SettingMismatch"),
        ("isaac", {"pixel_shuffle_scale": 4}, {}, "SettingMismatch"),
        ("isaac", {}, {"max_num_patches": 300}, "InvalidSetting"),
        ("isaac", {}, {"vision_max_num_patches": 300}, "UnknownSetting"),
        ("glm5_next", {}, {"size": {"longest_edge": 1}}, "UnknownSetting"),
        ("glm5_next", {}, {"max_image_tokens": 8}, "InvalidSetting"),
        ("glm5_next", {"vision_config": {"patch_size": 16}}, {}, "SettingMismatch"),
        ("muse_glimmer", {}, {"max_image_token": 8}, "UnknownSetting"),
        ("muse_glimmer", {"vision_config": {"merge_size": 1}}, {}, "SettingMismatch"),
        ("inkling", {}, {"images_kwargs": {"rescale_image_frac": 1.0}}, "UnknownSetting"),
        ("inkling", {"vision_config": {"patch_size": 32}}, {}, "SettingMismatch"),
        ("inkling", {"vision_config": {"decoder_dmodel": None}}, {}, "TakesNoImages"),
        ("minimax_m3", {}, {"max_long_side_pixel": 100}, "InvalidSetting"),
        ("minimax_m3", {}, {"images_kwargs": {"max_pixels": 1003520}}, "UnknownSetting"),
        ("bagel", {"vit_max_num_patch_per_side": 64}, {}, "SettingMismatch"),
        ("bagel", {}, {"size": {"height": 448, "width": 448}}, "SettingMismatch"),
    ],
)
def test_a_setting_that_would_break_requests_or_the_start_is_refused(
    family: str, overrides: dict[str, Any], kwargs: dict[str, Any], wanted: str
) -> None:
    assert reason(bind(family, overrides, **kwargs)) == wanted


def test_a_strip_of_more_tokens_than_muse_glimmer_reserves_is_refused() -> None:
    assert reason(bound("muse_glimmer").count_image(28, 200_000)) == "AspectRatioTooExtreme"


def test_minimax_m3_turns_away_what_its_long_side_leaves_too_large() -> None:
    rule = bound("minimax_m3", max_long_side_pixel=6000)
    assert count(rule, (6000, 2100)).embed_tokens > 0
    assert reason(rule.count_image(6000, 4000)) == "ImageTooLarge"
    assert bound("minimax_m3_long_side", max_pixels=9).ignored_settings == ("mm_processor_kwargs.max_pixels",)


def test_isaac_turns_away_more_than_sixty_megapixels() -> None:
    assert count(bound("isaac"), (10_000, 6_000)).embed_tokens > 0
    assert reason(bound("isaac").count_image(10_000, 6_001)) == "ImageTooLarge"


def test_inkling_enlarges_up_to_an_edge_and_shrinks_nothing() -> None:
    assert count(bound("inkling"), (1000, 500)).resized == (2000, 1000)
    assert count(bound("inkling"), (1500, 750)).resized == (2048, 1024)
    assert count(bound("inkling"), (3000, 1500)).resized == (3000, 1500)
    assert count(bound("inkling", rescale_image_frac=1.0), (1000, 500)).resized == (1000, 500)
    assert bound("inkling").maximum().engine_tokens == 72


def test_alpamayo_follows_its_file_where_config_json_sets_no_limits() -> None:
    rule = bound("alpamayo2", {"min_pixels": None, "max_pixels": None})
    assert rule.maximum().engine_tokens == 16384


def test_a_missing_figure_is_named() -> None:
    answer = bind_rule("DeepseekV4ForConditionalGeneration", {"vision_patch_size": 14}, {})
    assert isinstance(answer, TokenRefusal)
    assert "vision_downsample_ratio" in answer.message
