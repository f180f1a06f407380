"""What holds for every video of the Qwen-VL families."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens.native_grid import GridShape, NativeGrid
from vlm_operator.sizing.tokens.types import ImageTokens, ServerSettings
from vlm_operator.sizing.tokens.video import VideoRule, VideoShape, VideoTokens

SHIPPED = ServerSettings()
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 6000))
FRAMES = st.one_of(st.integers(1, 12), st.integers(1, 2000))
RATES = st.one_of(st.sampled_from([1.0, 2.0, 23.976, 24.0, 25.0, 29.97, 30.0, 60.0]), st.floats(0.1, 240))


@st.composite
def video_rules(draw: st.DrawFn, *, whole: st.SearchStrategy[bool] = st.booleans()) -> VideoRule:  # noqa: B008 - immutable
    unit = draw(st.sampled_from([28, 32]))
    least = draw(st.integers(1, 2_000_000))
    most = draw(st.one_of(st.integers(max(least, unit**2), 30_000_000), st.integers(unit**2, 400_000)))
    shape = VideoShape(unit=unit, merge_size=2, group=2, min_pixels=least, max_pixels=most, whole=draw(whole))
    image = GridShape(unit=unit, merge_size=2, min_pixels=least, max_pixels=most)
    return VideoRule(settings=SHIPPED, model_id="", shape=shape, image=image)


@given(video_rules(), FRAMES, RATES, SIDES, SIDES)
@settings(max_examples=600, deadline=None)
def test_a_video_never_exceeds_the_bound(rule: VideoRule, frames: int, fps: float, width: int, height: int) -> None:
    answer = rule.count_video(frames, fps, width, height)
    if not isinstance(answer, VideoTokens):
        return
    groups, columns, rows = answer.grid
    assert 0 < answer.embed_tokens == groups * columns * rows <= rule.maximum(32768).most_tokens
    assert answer.embed_tokens <= answer.placeholder_length < answer.prompt_tokens
    assert answer.vit_patches == 4 * answer.embed_tokens
    assert groups == math.ceil(answer.frames / 2)
    assert min(frames, 4) - 1 <= answer.frames <= min(frames, 768)


@given(video_rules(whole=st.sampled_from([False])), FRAMES, RATES, SIDES, SIDES)
@settings(max_examples=300, deadline=None)
def test_a_group_of_separate_frames_takes_the_tokens_of_an_image(
    rule: VideoRule, frames: int, fps: float, width: int, height: int
) -> None:
    answer = rule.count_video(frames, fps, width, height)
    image = NativeGrid(settings=SHIPPED, model_id="", shape=rule.image).count_image(width, height)
    if isinstance(answer, VideoTokens):
        assert isinstance(image, ImageTokens)
        assert answer.embed_tokens == answer.grid[0] * image.embed_tokens
        assert answer.resized == image.resized


@given(video_rules(), SIDES, SIDES, st.integers(4, 2000))
@settings(max_examples=300, deadline=None)
def test_the_same_seconds_at_a_higher_rate_are_the_same_number_of_frames(
    rule: VideoRule, width: int, height: int, seconds: int
) -> None:
    # From four frames a second on, the loader thins the file, and only its length in time counts.
    low = rule.count_video(seconds * 4, 4.0, width, height)
    high = rule.count_video(seconds * 32, 32.0, width, height)
    assert type(low) is type(high)
    if isinstance(low, VideoTokens) and isinstance(high, VideoTokens):
        assert abs(low.frames - high.frames) <= 1
        assert low.grid[0] == high.grid[0] or not rule.shape.whole


@given(video_rules(), st.integers(1, 300_000), st.integers(0, 300_000))
@settings(max_examples=300, deadline=None)
def test_a_longer_model_never_lowers_the_engines_maximum(rule: VideoRule, length: int, more: int) -> None:
    low, high = rule.maximum(length), rule.maximum(length + more)
    assert low.engine_tokens <= high.engine_tokens
    assert low.most_tokens == high.most_tokens
