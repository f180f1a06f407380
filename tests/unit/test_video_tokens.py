"""Videos of the Qwen-VL families: what is sampled, what it costs, and what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from vlm_operator.sizing.tokens import ServerSettings, TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.video import VideoRule, VideoTokens, bind_video_rule

QWEN2 = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
QWEN2_CONFIG = {"vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}}
QWEN3_VIDEO = {"size": {"longest_edge": 25165824, "shortest_edge": 4096}, "temporal_patch_size": 2}
QWEN3 = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "merge_size": 2,
    "video_processor": QWEN3_VIDEO,
}
QWEN3_CONFIG = {"vision_config": {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}}


def bind(version: str, processor: Mapping[str, Any] | None = None, **kwargs: Any) -> VideoRule | TokenRefusal:
    config, shipped = (QWEN3_CONFIG, QWEN3) if version.startswith("3") else (QWEN2_CONFIG, QWEN2)
    name = f"Qwen{version}ForConditionalGeneration"
    return bind_video_rule(name, config, processor or shipped, ServerSettings(mm_processor_kwargs=kwargs))


def rule(version: str, **kwargs: Any) -> VideoRule:
    bound = bind(version, **kwargs)
    assert isinstance(bound, VideoRule), bound
    return bound


def count(version: str, frames: int, fps: float, width: int, height: int, **kwargs: Any) -> VideoTokens:
    answer = rule(version, **kwargs).count_video(frames, fps, width, height)
    assert isinstance(answer, VideoTokens), answer
    return answer


def test_qwen2_vl_takes_two_frames_a_second_and_resizes_each() -> None:
    answer = count("2VL", 300, 30, 1280, 720)
    assert (answer.frames, answer.grid, answer.resized) == (20, (10, 46, 26), (1288, 728))
    assert (answer.embed_tokens, answer.placeholder_length, answer.prompt_tokens) == (11960, 11960, 11962)
    assert answer.vit_patches == 4 * 11960


def test_qwen3_vl_stamps_each_group_of_frames() -> None:
    answer = count("3VL", 300, 30, 1280, 720)
    # Ten groups of <s.t seconds>, start and end; the chat template's own start and end stay around them.
    assert (answer.frames, answer.grid) == (20, (10, 40, 22))
    assert answer.placeholder_length == answer.embed_tokens + 10 * (6 + 2)
    assert answer.prompt_tokens == answer.placeholder_length + 2


def test_a_longer_video_of_qwen3_vl_has_smaller_frames() -> None:
    answer = count("3VL", 1800, 30, 1920, 1080)
    assert (answer.frames, answer.resized) == (120, (608, 320))
    # Stamps of ten seconds and more have one digit more: 10 groups below, 50 above.
    assert answer.placeholder_length == answer.embed_tokens + 10 * 8 + 50 * 9


@pytest.mark.parametrize(
    ("frames", "fps", "taken"),
    [(30, 30.0, 4), (75, 30.0, 4), (100_000, 30.0, 768), (3, 30.0, 2), (451, 8.35, 109)],
)
def test_qwen2_vl_samples_an_even_number_of_frames_but_for_rounding(frames: int, fps: float, taken: int) -> None:
    assert count("2_5_VL", frames, fps, 280, 280).frames == taken


@pytest.mark.parametrize(("frames", "fps", "taken"), [(30, 30.0, 4), (75, 30.0, 5), (100_000, 30.0, 768), (3, 30.0, 3)])
def test_qwen3_vl_samples_any_number_of_frames(frames: int, fps: float, taken: int) -> None:
    assert count("3VLMoe", frames, fps, 320, 320).frames == taken


def test_a_processor_with_its_own_rate_thins_a_video_that_the_loader_took_whole() -> None:
    slow = {**QWEN3, "video_processor": {**QWEN3_VIDEO, "fps": 1}}
    bound = bind("3VL", slow)
    assert isinstance(bound, VideoRule)
    answer = bound.count_video(20, 2, 320, 320)
    assert isinstance(answer, VideoTokens)
    assert answer.frames == 10
    thinned = bound.count_video(300, 30, 320, 320)
    assert isinstance(thinned, VideoTokens)
    assert thinned.frames == 20


def test_a_processor_that_leaves_one_frame_is_refused() -> None:
    bound = bind("3VL", {**QWEN3, "video_processor": {**QWEN3_VIDEO, "max_frames": 1}})
    assert isinstance(bound, VideoRule)
    refusal = bound.count_video(4, 2, 320, 320)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "InvalidVideo"


def test_a_flat_cap_holds_for_the_whole_video_of_qwen3_vl_and_each_frame_of_qwen2_vl() -> None:
    assert count("3VL", 300, 30, 1280, 720, max_pixels=1310720).embed_tokens <= 1310720 // 2 // 1024
    assert count("2VL", 300, 30, 1280, 720, max_pixels=200704).embed_tokens <= 10 * 256


def test_a_cap_on_images_leaves_the_video_of_qwen3_vl_alone_but_lowers_the_maximum_of_qwen2_vl() -> None:
    scoped = {"images_kwargs": {"max_pixels": 1003520}}
    assert count("3VL", 300, 30, 1280, 720, **scoped) == count("3VL", 300, 30, 1280, 720)
    assert count("2VL", 300, 30, 1280, 720, **scoped) == count("2VL", 300, 30, 1280, 720)
    assert rule("2VL", **scoped).maximum(32768).engine_tokens == 7 * 1280
    assert rule("3VL", **scoped).maximum(32768).engine_tokens == 12288


@pytest.mark.parametrize(("length", "tokens"), [(4096, 16384), (32768, 32768), (128000, 114688)])
def test_the_maximum_of_qwen2_vl_grows_with_the_length_of_the_model(length: int, tokens: int) -> None:
    assert rule("2VL").maximum(length).engine_tokens == tokens


def test_five_frames_of_qwen3_vl_exceed_the_engines_maximum() -> None:
    answer = count("3VL", 75, 30, 3000, 2000)
    maximum = rule("3VL").maximum(262144)
    assert maximum.engine_tokens < answer.embed_tokens <= maximum.most_tokens


@pytest.mark.parametrize(
    ("version", "video", "reason"),
    [
        ("2VL", (1, 30, 640, 480), "InvalidVideo"),
        ("3VL", (300, 0, 640, 480), "InvalidVideo"),
        ("3VL", (300, float("nan"), 640, 480), "InvalidVideo"),
        ("3VL", (300, 1e-300, 640, 480), "InvalidVideo"),
        ("2VL", (300, 30, 4000, 19), "AspectRatioTooExtreme"),
        ("3VL", (300, 30, 10, 3000), "AspectRatioTooExtreme"),
        ("2VL", (300, 30, 0, 480), "InvalidImageSize"),
        ("2VL", (300, 30, 20000, 10000), "ImageTooLarge"),
    ],
)
def test_a_video_that_the_engine_cannot_take_is_refused(
    version: str, video: tuple[int, float, int, int], reason: str
) -> None:
    answer = rule(version).count_video(*video)
    assert isinstance(answer, TokenRefusal)
    assert answer.reason == reason


@pytest.mark.parametrize(
    ("version", "kwargs", "reason"),
    [
        ("3VL", {"videos_kwargs": {"typo": 1}}, "UnknownSetting"),
        ("3VL", {"videos_kwargs": {"max_pixels": 1310720}}, "StartupFails"),
        ("3VL", {"videos_kwargs": 7}, "InvalidSetting"),
        ("2VL", {"size": {"longest_edge": 1003520}}, "StartupFails"),
        ("2VL", {"max_pixel": 1}, "UnknownSetting"),
        ("2VL", {"max_pixels": "many"}, "InvalidSetting"),
    ],
)
def test_a_setting_that_is_not_counted_is_refused(version: str, kwargs: dict[str, Any], reason: str) -> None:
    refusal = bind(version, **kwargs)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == reason


@pytest.mark.parametrize("kwargs", [{"fps": 1}, {"videos_kwargs": {"num_frames": 8}}])
def test_a_setting_of_the_sampling_leaves_the_maximum_but_no_count(kwargs: dict[str, Any]) -> None:
    refusal = rule("3VL", **kwargs).count_video(300, 30, 640, 480)
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "VideoNotCounted"
    assert rule("3VL", **kwargs).maximum(32768) == rule("3VL").maximum(32768)


def test_a_scoped_setting_stands_above_a_flat_one() -> None:
    scoped = {"max_pixels": 200704, "videos_kwargs": {"max_pixels": 1310720}}
    assert count("2VL", 300, 30, 1280, 720, **scoped) == count("2VL", 300, 30, 1280, 720, max_pixels=1310720)


def test_the_largest_image_is_resized_as_a_frame_for_the_engines_maximum() -> None:
    # vLLM 0.33.0 on Qwen2.5-VL-7B: seven groups of 11 x 11 tokens.
    assert rule("2_5_VL", videos_kwargs={"max_pixels": 100352}).maximum(128000).engine_tokens == 847


def test_qwen3_vl_without_values_for_videos_is_refused() -> None:
    refusal = bind("3VL", {key: value for key, value in QWEN3.items() if key != "video_processor"})
    assert isinstance(refusal, TokenRefusal)
    assert refusal.reason == "MissingProcessorValue"


def test_the_catalogues_section_of_video_values_does_as_well() -> None:
    files = {key: value for key, value in QWEN3.items() if key != "video_processor"}
    assert bind("3VL", {**files, "video": QWEN3_VIDEO}) == bind("3VL")


def test_another_family_is_told_which_ones_have_video() -> None:
    refusal = bind_video_rule("InternVLChatModel", {}, {}, model_id="some/model")
    assert isinstance(refusal, TokenRefusal)
    assert "some/model" in refusal.message
    assert "Qwen3VLForConditionalGeneration" in refusal.message


def test_settings_of_videos_leave_images_alone() -> None:
    settings = ServerSettings(mm_processor_kwargs={"fps": 1})
    plain = bind_rule("Qwen3VLForConditionalGeneration", QWEN3_CONFIG, QWEN3)
    with_fps = bind_rule("Qwen3VLForConditionalGeneration", QWEN3_CONFIG, QWEN3, settings)
    assert not isinstance(plain, TokenRefusal)
    assert not isinstance(with_fps, TokenRefusal)
    assert with_fps.count_image(1280, 720) == plain.count_image(1280, 720)
