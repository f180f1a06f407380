"""Video tokens of the Qwen-VL families: which frames the engine takes from a file, and what they cost.

The engine takes two frames per second (``video_sampling``). Qwen2-VL resizes each frame as an image; Qwen3-VL resizes
all frames together, so that ``max_pixels`` bounds the whole video.
Then ``group`` frames (2) make one grid of tokens, the last frame repeated where one is missing. Qwen3-VL puts a time
stamp, a start and an end token around every grid, and both put a start and an end token around the video.

The engine's own maximum knows nothing of this sampling: for Qwen2-VL it is the largest image, resized as a frame, times
as many groups as ``max_model_len`` holds, at most 14 frames; for Qwen3-VL two frames that fill the video's pixel limit.

Source: the video processors of ``transformers`` (Qwen2VLVideoProcessor, Qwen3VLVideoProcessor), the engine's video
loaders for them and its Qwen2-VL and Qwen3-VL processing information, under its default media options. A checkpoint's
video_preprocessor_config.json is read as the section ``video_processor`` of the processor files, as newer checkpoints
nest it; Qwen2-VL without one takes the values of the images.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from vlm_operator.sizing.tokens import reading, registry
from vlm_operator.sizing.tokens.largest_grid import Limits, largest_image
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.native_grid import (
    MAX_ASPECT,
    PIXEL_SETTINGS,
    SAMPLING_SETTINGS,
    GridShape,
    build_native_grid,
    fit_grid,
    most_tokens_size,
    read_size,
)
from vlm_operator.sizing.tokens.types import ServerSettings, TokenRefusal
from vlm_operator.sizing.tokens.video_sampling import (
    LOADER_FPS,
    MAX_FRAMES,
    MIN_FRAMES,
    Resampling,
    sample_even,
    sample_whole,
    stamp_tokens,
    stamps,
)
from vlm_operator.units import ceil_div

_MAX_DUMMY_FRAMES: Final = 14
_TAGS: Final = 2
_SLOWEST_FPS: Final = 1e-3
_FASTEST_FPS: Final = 1e6
"""Rates outside are mistakes, not files."""

_SECTIONS: Final = ("video_processor", "video")
"""Where the processor files keep the values of videos; the second is the catalogue's."""

_PER_FRAME: Final = frozenset({"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"})
_WHOLE: Final = frozenset(
    {
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
VIDEO_ARCHITECTURES: Final = _PER_FRAME | _WHOLE
"""Architectures whose videos can be counted."""


class VideoTokens(NamedTuple):
    """The tokens of one video.

    Attributes:
        embed_tokens: Embedding slots; what counts against the encoder budget and cache.
        placeholder_length: The whole placeholder range, time stamps and tags inside it included.
        prompt_tokens: Everything that the video adds to the prompt.
        vit_patches: Patches through the vision tower.
        frames: Frames that the engine takes from the file.
        resized: (width, height) of a frame that the tower sees.
        grid: (groups of frames, columns, rows) of tokens.
    """

    embed_tokens: int
    placeholder_length: int
    prompt_tokens: int
    vit_patches: int
    frames: int
    resized: tuple[int, int]
    grid: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoMaximum:
    """The largest video under the current settings.

    Attributes:
        most_tokens: Embedding tokens that no accepted video exceeds, the model's length aside.
        engine_tokens: What the engine computes as its maximum; it sizes the encoder budget.
        dummy_frames: Frames of the video that the engine profiles with.
        dummy_size: (width, height) of that video.
    """

    most_tokens: int
    engine_tokens: int
    dummy_frames: int
    dummy_size: tuple[int, int]


class VideoShape(NamedTuple):
    """What the count depends on.

    Attributes:
        unit: Side in pixels of the square that becomes one token.
        merge_size: Patches of a token along one side.
        group: Frames that share a grid of tokens.
        min_pixels: Pixels below which frames are enlarged; of the whole video where ``whole``.
        max_pixels: Pixels above which frames are shrunk; of the whole video where ``whole``.
        whole: Are all frames resized together and stamped with their time (Qwen3-VL)?
        resampling: What the processor samples from a short video, where ``whole``.
    """

    unit: int
    merge_size: int
    group: int
    min_pixels: int
    max_pixels: int
    whole: bool
    resampling: Resampling = Resampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoRule:
    """The video rule bound to one model and its settings.

    Attributes:
        settings: Server flags.
        model_id: For messages.
        shape: What the count depends on.
        image: What the images of the same server are counted with.
        sampled_by: Settings of the sampling; under them videos have a maximum, but are not counted one by one.
    """

    settings: ServerSettings
    model_id: str
    shape: VideoShape
    image: GridShape
    sampled_by: tuple[str, ...] = ()

    def count_video(self, frames: int, frames_per_second: float, width: int, height: int) -> VideoTokens | TokenRefusal:
        """Count a file of ``frames`` frames of ``width`` x ``height`` pixels at its own frame rate."""
        if self.sampled_by:
            return TokenRefusal(
                reason="VideoNotCounted",
                message=f"{self.model_id or 'this model'}: videos are counted as the engine samples them by itself, "
                f"and not under {', '.join(self.sampled_by)} of mm_processor_kwargs; drop it",
            )
        return _count(frames, frames_per_second, width, height, self.shape)

    def maximum(self, max_model_len: int) -> VideoMaximum:
        """Return the largest video; ``max_model_len`` is the length that the server runs with."""
        shape, image = self.shape, self.image
        if shape.whole:
            size, frames = most_tokens_size(shape.max_pixels // shape.group, shape.unit), shape.group
            columns, rows = _fit_whole(frames, *size, shape)
            groups, most = 1, _most_of_whole(shape)
        else:
            size = most_tokens_size(image.max_pixels, image.unit)
            columns, rows = _fit_frame(*size, shape)
            frames = _most_dummy_frames(columns * rows, max_model_len, shape.group)
            groups, most = ceil_div(frames, shape.group), _most_of_frames(shape)
        return VideoMaximum(
            most_tokens=most,
            engine_tokens=groups * columns * rows,
            dummy_frames=frames,
            dummy_size=size,
        )


def bind_video_rule(
    architecture: str,
    config: Mapping[str, Any],
    processor: Mapping[str, Any],
    settings: ServerSettings = ServerSettings(),  # noqa: B008 - frozen
    model_id: str = "",
) -> VideoRule | TokenRefusal:
    """Return the video rule of ``architecture`` bound to one model and the server's settings, or why there is none.

    Args:
        architecture: Entry of ``architectures`` in config.json.
        config: Content of config.json.
        processor: The processor files, merged as for images; ``video_processor`` or ``video`` holds the values for
            videos.
        settings: Server flags.
        model_id: For messages.
    """
    if architecture not in VIDEO_ARCHITECTURES:
        return TokenRefusal(
            reason="VideoNotCounted",
            message=f"{model_id or architecture}: there is no counting rule for videos of {architecture}; there is "
            f"one for {', '.join(sorted(VIDEO_ARCHITECTURES))}; set the video limit to 0, or choose one of these",
        )
    source = reading.Source(
        model_id=model_id,
        config=reading.merge(config, settings.hf_overrides),
        processor=processor,
        settings=settings,
    )
    whole = architecture in _WHOLE
    try:
        lifted = replace(source, processor=registry.lift_image_processor(processor))
        image = build_native_grid(lifted, completes_size=whole).shape
        given = _flatten_videos_kwargs(settings, whole=whole)
        shape = _read_shape(source, given, image, whole=whole)
    except reading.Refused as refused:
        return refused.refusal
    sampled_by = tuple(key for key in SAMPLING_SETTINGS if key in given)
    return VideoRule(settings=settings, model_id=model_id, shape=shape, image=image, sampled_by=sampled_by)


def _flatten_videos_kwargs(settings: ServerSettings, *, whole: bool) -> dict[str, Any]:
    """Return the processor settings with the scoped form ``videos_kwargs`` laid over the flat one.

    Raises:
        Refused: ``videos_kwargs`` is not an object, or has a key that the engine would ignore, or trip over:
            Qwen3-VL's video processor knows pixel limits as ``size`` alone.
    """
    scoped = settings.mm_processor_kwargs.get("videos_kwargs", {})
    if not isinstance(scoped, Mapping):
        raise reading.Refused(
            "InvalidSetting", f"mm_processor_kwargs.videos_kwargs is {scoped!r}, but must be an object of settings"
        )
    for key in ("min_pixels", "max_pixels"):
        if whole and key in scoped:
            raise reading.Refused(
                "StartupFails",
                f"mm_processor_kwargs.videos_kwargs.{key} = {scoped[key]!r} is no setting of this model's video "
                "processor (TypeError); give videos_kwargs.size with both edges instead",
            )
    known = (*PIXEL_SETTINGS, *SAMPLING_SETTINGS)
    reading.refuse_unknown(
        {f"videos_kwargs.{key}": value for key, value in scoped.items()}, {f"videos_kwargs.{key}" for key in known}
    )
    flat = {key: value for key, value in settings.mm_processor_kwargs.items() if key in known}
    return reading.merge(flat, scoped)


def _read_shape(source: reading.Source, given: Mapping[str, Any], image: GridShape, *, whole: bool) -> VideoShape:
    size = read_size(source, given, completes_size=whole)
    files = next((source.processor[key] for key in _SECTIONS if key in source.processor), None)
    if files is None and not whole:
        files = registry.lift_image_processor(source.processor)
    files = files if isinstance(files, Mapping) else {}
    name = source.model_id

    def limit(pixels: str, edge: str) -> int:
        places = (given, pixels), (size, edge), (files, pixels), (files, f"size.{edge}")
        return reading.first_int(name, *places)

    shape = VideoShape(
        unit=image.unit,
        merge_size=image.merge_size,
        group=reading.same_in_both(
            replace(source, processor=files), "temporal_patch_size", "vision_config.temporal_patch_size"
        ),
        min_pixels=limit("min_pixels", "shortest_edge"),
        max_pixels=limit("max_pixels", "longest_edge"),
        whole=whole,
    )
    if not whole:
        return shape
    # These three have class defaults in Qwen3VLVideoProcessor, which Qwen3.5's file relies on.
    resampling = Resampling(
        fps=reading.positive_number("fps", files.get("fps") or LOADER_FPS),
        min_frames=reading.first_int(name, (files, "min_frames"), default=MIN_FRAMES),
        max_frames=reading.first_int(name, (files, "max_frames"), default=MAX_FRAMES),
    )
    return shape._replace(resampling=resampling)


@lru_cache(maxsize=65536)
def _count(frames: int, fps: float, width: int, height: int, shape: VideoShape) -> VideoTokens | TokenRefusal:
    refusal = check_size(width, height) or _check_frames(frames, fps, shape)
    if refusal is not None:
        return refusal
    wide, high = _lift_short_side(width, height, shape.unit) if shape.whole else (width, height)
    if max(wide, high) > MAX_ASPECT * min(wide, high):
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"video size {width}x{height}: the engine accepts an aspect ratio of at most {MAX_ASPECT}; crop it",
        )
    if shape.whole:
        indices = sample_whole(frames, fps, shape.resampling)
        taken = len(indices)
        if taken < shape.group:
            return _refuse_frames(taken, shape.group)
        columns, rows = _fit_whole(taken, wide, high, shape)
    else:
        indices, taken = [], sample_even(frames, fps)
        columns, rows = _fit_frame(wide, high, shape)
    groups, per_group = ceil_div(taken, shape.group), columns * rows
    embeds = groups * per_group
    length = embeds + sum(stamp_tokens(stamp) + _TAGS for stamp in stamps(indices, fps, shape.group))
    return VideoTokens(
        embed_tokens=embeds,
        placeholder_length=length,
        prompt_tokens=length + _TAGS,
        vit_patches=embeds * shape.merge_size**2,
        frames=taken,
        resized=(columns * shape.unit, rows * shape.unit),
        grid=(groups, columns, rows),
    )


def _check_frames(frames: int, fps: float, shape: VideoShape) -> TokenRefusal | None:
    if not _SLOWEST_FPS <= fps <= _FASTEST_FPS:
        return TokenRefusal(
            reason="InvalidVideo",
            message=f"a frame rate of {fps}: the engine samples by time; give the frames per second of the file, "
            f"from {_SLOWEST_FPS} to {_FASTEST_FPS}",
        )
    return _refuse_frames(frames, shape.group) if frames < shape.group else None


def _refuse_frames(frames: int, group: int) -> TokenRefusal:
    return TokenRefusal(
        reason="InvalidVideo",
        message=f"a video of {frames} frames: the engine needs at least {group}; send it as an image",
    )


def _fit_frame(width: int, height: int, shape: VideoShape) -> tuple[int, int]:
    return fit_grid(width, height, GridShape(shape.unit, shape.merge_size, shape.min_pixels, shape.max_pixels))


def _lift_short_side(width: int, height: int, unit: int) -> tuple[int, int]:
    """Return the size after a side shorter than one unit is scaled up to it, in the engine's floating point."""
    if min(width, height) >= unit:
        return width, height
    scale = max(unit / height, unit / width)
    return int(width * scale), int(height * scale)


def _fit_whole(frames: int, width: int, height: int, shape: VideoShape) -> tuple[int, int]:
    """Return (columns, rows) of one group where the limits hold for all frames together."""
    unit = shape.unit
    columns, rows = round(width / unit), round(height / unit)
    pixels = round(frames / shape.group) * shape.group * columns * rows * unit**2
    if pixels > shape.max_pixels:
        scale = math.sqrt(frames * height * width / shape.max_pixels)
        return max(1, math.floor(width / scale / unit)), max(1, math.floor(height / scale / unit))
    if pixels < shape.min_pixels:
        scale = math.sqrt(shape.min_pixels / (frames * height * width))
        return math.ceil(width * scale / unit), math.ceil(height * scale / unit)
    return columns, rows


def _most_dummy_frames(per_group: int, max_model_len: int, group: int) -> int:
    """Return the frames of Qwen2-VL's dummy: as many as fit ``max_model_len``, at most 14, at least one."""
    return max(1, min(max_model_len // per_group * group, _MAX_DUMMY_FRAMES))


@lru_cache(maxsize=1024)
def _most_of_frames(shape: VideoShape) -> int:
    """Return the most tokens of a video whose frames are resized one by one."""

    def count(width: int, height: int) -> int:
        columns, rows = _fit_frame(width, height, shape)
        return columns * rows

    limits = Limits(shape.unit, shape.min_pixels, shape.max_pixels, MAX_ASPECT, MAX_DECODED_PIXELS)
    return ceil_div(MAX_FRAMES, shape.group) * largest_image(limits, count)[0]


@lru_cache(maxsize=1024)
def _most_of_whole(shape: VideoShape) -> int:
    """Return a bound on the tokens of a video whose frames share one pixel limit, over all numbers of frames."""
    square, most = shape.unit**2, 0
    for frames in range(shape.group, MAX_FRAMES + 1):
        # The rule rounds the frames to whole groups, halves to even, so an odd number can pass as fewer.
        counted = round(frames / shape.group) * shape.group
        inside = shape.max_pixels // (counted * square)
        # A very long frame keeps one row while its long side follows the root of the limit.
        shrunk = max(1, math.isqrt(shape.max_pixels * MAX_ASPECT // frames) // shape.unit)
        per_group = max(inside, shape.max_pixels // (frames * square), shrunk, _most_enlarged(frames, shape))
        most = max(most, ceil_div(frames, shape.group) * per_group)
    return most


def _most_enlarged(frames: int, shape: VideoShape) -> int:
    """Return a bound on the tokens of a group whose frames are enlarged: both sides are rounded up."""
    floor, unit, most = shape.min_pixels / frames, shape.unit, 0
    lowest = math.sqrt(floor / MAX_ASPECT)
    for rows in range(max(1, math.floor(lowest / unit)), math.isqrt(math.ceil(floor)) // unit + 3):
        short = max((rows - 1) * unit, lowest)
        most = max(most, rows * (math.ceil(floor / short / unit) + 1))
    return most
