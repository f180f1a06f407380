"""Image size -> tokens. One module per counting rule, one table from architecture to rule."""

from vlm_operator.sizing.tokens.registry import BUILDERS, bind_rule
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    ServerSettings,
    TokenRefusal,
)
from vlm_operator.sizing.tokens.video import VideoMaximum, VideoRule, VideoTokens, bind_video_rule

__all__ = [
    "BUILDERS",
    "Cap",
    "ImageRule",
    "ImageTokens",
    "MaximumTokens",
    "Part",
    "ServerSettings",
    "TokenRefusal",
    "VideoMaximum",
    "VideoRule",
    "VideoTokens",
    "bind_rule",
    "bind_video_rule",
]
