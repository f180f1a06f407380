"""Which frames of a file the engine takes, and when they are.

In come the frames of a file and its frame rate; out go the frames taken and their time stamps. Source: the engine's
video loaders for Qwen2-VL and Qwen3-VL and the sampling of their video processors in ``transformers``; the loaders
take two frames a second, at least 4 and at most 768.
"""

import math
from typing import Final, NamedTuple

LOADER_FPS: Final = 2
MIN_FRAMES: Final = 4
MAX_FRAMES: Final = 768
_STAMP_TEXT_TOKENS: Final = 3
"""``<``, `` seconds`` and ``>``; each digit and the point are one token more."""


class Resampling(NamedTuple):
    """What Qwen3-VL's processor samples where the loader handed it every frame of the file."""

    fps: float = LOADER_FPS
    min_frames: int = MIN_FRAMES
    max_frames: int = MAX_FRAMES


def sample_even(frames: int, fps: float) -> int:
    """Return how many frames Qwen2-VL's loader takes; its division can come out one above the even number."""
    wanted = min(max(frames / fps * LOADER_FPS, MIN_FRAMES), min(MAX_FRAMES, frames) // 2 * 2)
    even = math.floor(wanted / 2) * 2
    return math.ceil(frames / (frames / even))


def sample_whole(frames: int, fps: float, resampling: Resampling) -> list[int]:
    """Return the frames that Qwen3-VL's loader takes; where that is all, its processor samples once more."""
    taken = min(max(int(frames / fps * LOADER_FPS), MIN_FRAMES), MAX_FRAMES, frames)
    if taken == frames:
        taken = min(max(int(frames / fps * resampling.fps), resampling.min_frames), resampling.max_frames, frames)
    step = (frames - 1) / (taken - 1) if taken > 1 else 0.0
    return [*(round(number * step) for number in range(taken - 1)), frames - 1 if taken > 1 else 0]


def stamps(indices: list[int], fps: float, group: int) -> list[float]:
    """Return the seconds that each group is stamped with: the middle of its first and last frame."""
    padded = indices + indices[-1:] * (-len(indices) % group)
    return [(padded[first] / fps + padded[first + group - 1] / fps) / 2 for first in range(0, len(padded), group)]


def stamp_tokens(seconds: float) -> int:
    """Return the tokens of a time stamp such as ``<12.3 seconds>``."""
    return len(f"{seconds:.1f}") + _STAMP_TEXT_TOKENS
