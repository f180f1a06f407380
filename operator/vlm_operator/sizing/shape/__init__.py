"""The shape of a checkpoint: every size that memory and sharding rules read, from its ``config.json``."""

from vlm_operator.sizing.shape.read import ARCHITECTURES, read_shape
from vlm_operator.sizing.shape.text import find_text_config
from vlm_operator.sizing.shape.types import ModelShape, ShapeRefusal, TextShape, VisionShape

__all__ = [
    "ARCHITECTURES",
    "ModelShape",
    "ShapeRefusal",
    "TextShape",
    "VisionShape",
    "find_text_config",
    "read_shape",
]
