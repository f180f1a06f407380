"""Families that resize to one size: their counts, what their settings break, and what the image still decides."""

from collections.abc import Mapping
from typing import Any

import pytest

from vlm_operator.sizing.tokens import BUILDERS, ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

PALIGEMMA = "PaliGemmaForConditionalGeneration"
GEMMA3N = "Gemma3nForConditionalGeneration"
ARIA = "AriaForConditionalGeneration"
BLIP2 = "Blip2ForConditionalGeneration"
GLM4V = "GLM4VForCausalLM"
OPENVLA = "OpenVLAForActionPrediction"
PARSE = "NemotronParseForConditionalGeneration"
LLAVA = "LlavaForConditionalGeneration"
COLULTRA = "ColUltraVBertForRetrieval"

ARIA_CONFIG = {"projector_patch_to_query_dict": {"1225": 128, "4900": 256}, "vision_config": {"image_size": 980}}
PARSE_CONFIG = {"image_size": [2048, 1648], "encoder": {"patch_size": 16}}
ULTRA_CONFIG = {"vision_config": {"image_size": 512, "patch_size": 16}, "pixel_shuffle_factor": 4}
ULTRA_FILES = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}
SIZES = [(1, 1), (640, 480), (4032, 3024), (19, 4000)]


def tower(image_size: int, patch_size: int, **more: Any) -> dict[str, Any]:
    return {"vision_config": {"image_size": image_size, "patch_size": patch_size, **more}}


def bind(
    architecture: str, config: Mapping[str, Any], processor: Mapping[str, Any] | None = None, **kwargs: Any
) -> ImageRule | TokenRefusal:
    return bind_rule(architecture, config, processor or {}, ServerSettings(mm_processor_kwargs=kwargs), "some/model")


def rule(
    architecture: str, config: Mapping[str, Any], processor: Mapping[str, Any] | None = None, **kwargs: Any
) -> ImageRule:
    bound = bind(architecture, config, processor, **kwargs)
    assert isinstance(bound, ImageRule), bound
    return bound


def count(bound: ImageRule, width: int = 640, height: int = 480) -> ImageTokens:
    answer = bound.count_image(width, height)
    assert isinstance(answer, ImageTokens), answer
    return answer


def reason(answer: object) -> str:
    assert isinstance(answer, TokenRefusal), answer
    return answer.reason


@pytest.mark.parametrize(
    ("architecture", "config", "processor", "numbers"),
    [
        # (embedding, placeholder, prompt, patches) by the engine's formulas for these checkpoints' values.
        # google/paligemma2-3b-pt-896
        (PALIGEMMA, tower(896, 14), {"size": {"height": 896, "width": 896}}, (4096, 4097, 4096, 4096)),
        # vidore/colpali-v1.3-hf
        ("ColPaliForRetrieval", {"vlm_config": tower(448, 14)}, {"size": 448}, (1024, 1025, 1024, 1024)),
        # Salesforce/blip2-opt-2.7b
        (BLIP2, {"num_query_tokens": 32, **tower(224, 14)}, {"size": {"height": 224, "width": 224}}, (32, 32, 32, 256)),
        # Salesforce/blip2-opt-2.7b, a file that says nothing: the defaults of its classes
        (BLIP2, {}, {}, (32, 32, 32, 256)),
        # zai-org/glm-4v-9b
        (GLM4V, tower(1120, 14), {}, (1602, 1602, 1602, 6400)),
        # openvla/openvla-7b
        (OPENVLA, {"image_sizes": [224, 224]}, {}, (256, 256, 256, 256)),
        # openai/clip-vit-large-patch14-336 and, all defaults, openai/clip-vit-base-patch32
        ("CLIPModel", tower(336, 14), {"crop_size": 336, "size": 336}, (1, 1, 1, 576)),
        ("CLIPModel", {}, {"crop_size": {"height": 224, "width": 224}}, (1, 1, 1, 49)),
        # google/siglip-so400m-patch14-384 and, all defaults, google/siglip-base-patch16-224
        ("SiglipModel", tower(384, 14), {"size": {"height": 384, "width": 384}}, (1, 1, 1, 729)),
        ("SiglipModel", {}, {}, (1, 1, 1, 196)),
        # nvidia/NVIDIA-Nemotron-Parse-v1.1
        (PARSE, PARSE_CONFIG, {"final_size": [2048, 1648]}, (3201, 3201, 0, 13184)),
        # google/gemma-3n-E4B-it
        (GEMMA3N, {}, {"image_seq_length": 256, "size": {"height": 768, "width": 768}}, (256, 260, 260, 256)),
        # rhymes-ai/Aria
        (ARIA, ARIA_CONFIG, {"max_image_size": 980}, (256, 256, 258, 4900)),
    ],
)
def test_any_image_takes_the_same(
    architecture: str, config: dict[str, Any], processor: dict[str, Any], numbers: tuple[int, ...]
) -> None:
    bound = rule(architecture, config, processor)
    answers = {count(bound, *size) for size in SIZES}
    assert [answer[:4] for answer in answers] == [numbers]
    maximum = bound.maximum()
    assert maximum.true_tokens == maximum.engine_tokens == maximum.dummy_tokens == numbers[0]
    assert (bound.cap, bound.hint_lowers_budget) == (None, False)
    assert reason(bound.count_image(20_000, 10_000)) == "ImageTooLarge"


@pytest.mark.parametrize(
    ("architecture", "config", "processor", "size"),
    [
        (PALIGEMMA, tower(448, 14), {"size": {"height": 448, "width": 448}}, (448, 448)),
        (GEMMA3N, {}, {"size": {"height": 768, "width": 768}}, (768, 768)),
        (GEMMA3N, {}, {}, (224, 224)),
        (ARIA, ARIA_CONFIG, {}, (980, 980)),
        # The class default of its tower: the size that the engine draws has nothing to do with what the tower sees.
        (ARIA, {key: value for key, value in ARIA_CONFIG.items() if key != "vision_config"}, {}, (224, 224)),
        # Height and width are swapped in the engine's dummy of a page.
        (PARSE, PARSE_CONFIG, {}, (2048, 1648)),
    ],
)
def test_the_dummy_is_the_engines(
    architecture: str, config: dict[str, Any], processor: dict[str, Any], size: tuple[int, int]
) -> None:
    assert rule(architecture, config, processor).maximum().dummy_size == size


@pytest.mark.parametrize(
    ("model_type", "strategy", "tokens"),
    [
        ("clip_vision_model", "default", 576),
        ("clip_vision_model", "full", 577),
        # There is no class patch to drop, so the selection drops the first patch.
        ("siglip_vision_model", "default", 575),
        ("siglip_vision_model", "full", 576),
    ],
)
def test_llava_selects_features(model_type: str, strategy: str, tokens: int) -> None:
    config = {"vision_feature_select_strategy": strategy, **tower(336, 14, model_type=model_type)}
    files = {"size": {"height": 336, "width": 336}, "crop_size": {"height": 336, "width": 336}}
    assert count(rule(LLAVA, config, files)).embed_tokens == tokens
    assert reason(bind(LLAVA, config, {"size": 384, "crop_size": 384})) == "SettingMismatch"


@pytest.mark.parametrize(
    ("architecture", "config", "processor", "kwargs", "expected"),
    [
        (PALIGEMMA, tower(224, 14), {"size": {"height": 224, "width": 224}}, {"size": 448}, "SettingMismatch"),
        (PALIGEMMA, tower(224, 14), {}, {"images_kwargs": {"size": {"height": 448, "width": 448}}}, "SettingMismatch"),
        (PALIGEMMA, tower(448, 14), {"size": {"height": 224, "width": 224}}, {}, "SettingMismatch"),
        (PALIGEMMA, tower(224, 14), {}, {"size": {"longest_edge": 224}}, "InvalidSetting"),
        (PALIGEMMA, tower(224, 14), {}, {"no_such_option": 7}, "UnknownSetting"),
        (PALIGEMMA, tower(7, 14), {}, {}, "InvalidSetting"),
        (PALIGEMMA, {}, {}, {}, "MissingProcessorValue"),
        ("ColPaliForRetrieval", {}, {}, {}, "MissingProcessorValue"),
        (GEMMA3N, {}, {"image_seq_length": 64}, {}, "SettingMismatch"),
        (GEMMA3N, {"vision_soft_tokens_per_image": 64}, {}, {}, "SettingMismatch"),
        (GEMMA3N, {}, {}, {"size": "large"}, "InvalidSetting"),
        (GEMMA3N, {}, {}, {"do_resize": False}, "UnknownSetting"),
        (ARIA, ARIA_CONFIG, {}, {"max_image_size": 490}, "SettingMismatch"),
        (ARIA, ARIA_CONFIG, {}, {"max_image_size": 700}, "StartupFails"),
        (ARIA, ARIA_CONFIG, {}, {"split_image": True}, "StartupFails"),
        (ARIA, ARIA_CONFIG, {}, {"images_kwargs": {"split_image": True}}, "StartupFails"),
        (ARIA, ARIA_CONFIG, {"split_image": True}, {}, "StartupFails"),
        (ARIA, ARIA_CONFIG, {}, {"split_image": "yes"}, "InvalidSetting"),
        (ARIA, ARIA_CONFIG, {}, {"no_such_option": 7}, "UnknownSetting"),
        (ARIA, {}, {}, {}, "MissingProcessorValue"),
        (ARIA, {"projector_patch_to_query_dict": {"1225": 128, "4900": 0}}, {}, {}, "InvalidSetting"),
        (BLIP2, tower(224, 14), {"size": 384}, {}, "SettingMismatch"),
        (GLM4V, tower(1120, 14), {}, {"size": {"height": 448, "width": 448}}, "SettingMismatch"),
        (GLM4V, {}, {}, {}, "MissingProcessorValue"),
        (OPENVLA, {"image_sizes": [384, 384]}, {}, {}, "StartupFails"),
        (OPENVLA, {"use_fused_vision_backbone": False}, {}, {}, "StartupFails"),
        (OPENVLA, {}, {}, {"size": 384}, "UnknownSetting"),
        ("CLIPModel", tower(224, 14), {"crop_size": 336}, {}, "SettingMismatch"),
        ("CLIPModel", tower(225, 14), {}, {}, "StartupFails"),
        ("SiglipModel", tower(384, 14), {"size": 224}, {}, "SettingMismatch"),
        (PARSE, PARSE_CONFIG, {"final_size": [1664, 1280]}, {}, "SettingMismatch"),
        (PARSE, {"encoder": {"patch_size": 16}}, {}, {}, "InvalidSetting"),
        (PARSE, {"image_size": [2048, 1648]}, {}, {}, "MissingProcessorValue"),
        (PARSE, PARSE_CONFIG, {}, {"final_size": [1664, 1280]}, "UnknownSetting"),
        ("HfMoondream", {"config": {"vision": {"crop_size": 756}}}, {}, {}, "SettingMismatch"),
        ("HfMoondream", {}, {}, {"max_crops": 4}, "UnknownSetting"),
        ("Emu3ForConditionalGeneration", {}, {"spatial_factor": 16}, {}, "SettingMismatch"),
        ("Emu3ForConditionalGeneration", {}, {}, {"max_pixels": 262144}, "UnknownSetting"),
        (COLULTRA, ULTRA_CONFIG, {**ULTRA_FILES, "max_image_size": {"longest_edge": 364}}, {}, "SettingMismatch"),
        (COLULTRA, ULTRA_CONFIG, {**ULTRA_FILES, "size": {"longest_edge": 2000}}, {}, "InvalidSetting"),
        (COLULTRA, ULTRA_CONFIG, ULTRA_FILES, {"size": {"longest_edge": 1024}}, "UnknownSetting"),
    ],
)
def test_what_breaks_requests_or_does_nothing_is_refused(
    architecture: str, config: dict[str, Any], processor: dict[str, Any], kwargs: dict[str, Any], expected: str
) -> None:
    assert reason(bind(architecture, config, processor, **kwargs)) == expected


def test_a_setting_that_repeats_the_checkpoint_is_accepted() -> None:
    size = {"height": 448, "width": 448}
    assert count(rule(PALIGEMMA, tower(448, 14), {"size": size}, size=size)).embed_tokens == 1024
    assert count(rule(ARIA, ARIA_CONFIG, {}, split_image=False, max_image_size=980)).embed_tokens == 256


def test_gemma3n_ignores_what_it_is_told_and_says_so() -> None:
    bound = rule(GEMMA3N, {}, {"size": {"height": 768, "width": 768}}, size={"height": 512, "width": 512})
    assert bound.ignored_settings == ("mm_processor_kwargs.size.height", "mm_processor_kwargs.size.width")
    assert (count(bound).embed_tokens, count(bound).resized) == (256, (512, 512))
    assert bound.maximum().dummy_size == (768, 768)


def test_aria_follows_a_projector_whose_most_queries_are_for_small_images() -> None:
    config = {"projector_patch_to_query_dict": {"1225": 128}}
    assert count(rule(ARIA, config, {}, max_image_size=490)).embed_tokens == 128
    assert reason(bind(ARIA, config, {})) == "SettingMismatch"


@pytest.mark.parametrize(
    ("width", "height", "grid"),
    [
        (378, 378, (1, 1)),
        (5000, 370, (1, 1)),  # one side within a window: no cut
        (800, 600, (4, 2)),  # 3 x 2 windows would cover it; root of 12 x 688 / 488 is 4.1, of 12 x 488 / 688 2.9
        (4032, 3024, (4, 2)),  # 15 x 11 windows would cover it; scaled by the root of 12 / 165
        (8000, 400, (13, 1)),  # 30 x 2 windows, scaled; the one row that is kept holds more than 12
    ],
)
def test_moondream_cuts_crops_that_only_the_tower_sees(width: int, height: int, grid: tuple[int, int]) -> None:
    answer = count(rule("Moondream3ForCausalLM", {}), width, height)
    assert (answer.embed_tokens, answer.placeholder_length, answer.prompt_tokens) == (730, 730, 730)
    assert answer.grid == grid
    assert answer.tiles == grid[0] * grid[1] + 1
    assert answer.vit_patches == answer.tiles * 729


def test_emu3_ends_each_row_and_writes_the_grid_before_it() -> None:
    bound = rule("Emu3ForConditionalGeneration", {})
    answer = count(bound, 1024, 1024)
    # 128 rows of 128 codes and an end; "128*128", its sign among five marks, stands in the placeholder.
    assert (answer.embed_tokens, answer.placeholder_length, answer.vit_patches) == (16512, 16512 + 6 + 5, 16384)
    assert count(bound, 600, 800).embed_tokens == 100 * 76
    assert reason(bound.count_image(4000, 19)) == "AspectRatioTooExtreme"
    maximum = bound.maximum()
    assert (maximum.engine_tokens, maximum.dummy_size) == (16512, (1024, 1024))
    # A tall image has more rows to end: 1820 x (9 + 1) codes.
    assert maximum.true_tokens == 18200


@pytest.mark.parametrize(
    ("limit", "width", "height", "grid"),
    [
        (None, 1024, 1024, (4, 4)),
        (8, 1024, 1024, (2, 2)),
        (12, 1024, 1024, (3, 3)),
        (8, 4000, 1000, (4, 1)),
        (8, 2000, 1000, (4, 2)),
        (1, 1000, 1000, (1, 1)),
    ],
)
def test_colultravbert_shortens_the_long_side_until_the_tiles_fit(
    limit: int | None, width: int, height: int, grid: tuple[int, int]
) -> None:
    bound = rule(COLULTRA, ULTRA_CONFIG, {**ULTRA_FILES, "max_image_tiles": limit})
    answer = count(bound, width, height)
    views = grid[0] * grid[1] + 1 if grid != (1, 1) else 1
    assert (answer.grid, answer.tiles, answer.embed_tokens) == (grid, views, views * 64)


def test_colultravbert_profiles_with_an_image_as_wide_as_the_long_side() -> None:
    maximum = rule(COLULTRA, ULTRA_CONFIG, {**ULTRA_FILES, "max_image_tiles": 8}).maximum()
    assert (maximum.engine_tokens, maximum.dummy_size, maximum.true_tokens) == (576, (2048, 1024), 576)


@pytest.mark.parametrize(
    "architecture",
    [
        # Pooling models as the engine's registry spells them; the rest of their names are tested with their families.
        "ColModernVBertForRetrieval",
        "ColPaliForRetrieval",
        "ColQwen3",
        "ColQwen3_5",
        "ColUltraVBertForRetrieval",
        "EmbeddingGemma2Model",
        "JinaVLForRanking",
        "LlamaNemotronVLForSequenceClassification",
        "LlamaNemotronVLModel",
        "ModernVBertModel",
        "OpsColQwen3Model",
        "Qwen2VLForConditionalGeneration",
        "Qwen3VLNemotronEmbedModel",
    ],
)
def test_every_pooling_name_has_a_rule(architecture: str) -> None:
    assert architecture in BUILDERS
