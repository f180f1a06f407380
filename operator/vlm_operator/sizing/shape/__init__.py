"""The shape of a checkpoint: every size that memory and sharding rules read, from its ``config.json``."""

from vlm_operator.sizing.shape.kv_layers import AttentionKind, AttentionLayers, KVLayers, StateLayers
from vlm_operator.sizing.shape.read import ARCHITECTURES, read_shape
from vlm_operator.sizing.shape.text import find_text_config, rope, text_model_type
from vlm_operator.sizing.shape.types import ModelShape, Quantisation, ShapeRefusal, TextShape, VisionShape
from vlm_operator.sizing.shape.unsized import UNSIZED
from vlm_operator.sizing.shape.weight import Part, Scheme, Weight

__all__ = [
    "ARCHITECTURES",
    "UNSIZED",
    "AttentionKind",
    "AttentionLayers",
    "KVLayers",
    "ModelShape",
    "Part",
    "Quantisation",
    "Scheme",
    "ShapeRefusal",
    "StateLayers",
    "TextShape",
    "VisionShape",
    "Weight",
    "find_text_config",
    "read_shape",
    "rope",
    "text_model_type",
]
