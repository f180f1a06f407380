"""The language model of a checkpoint: configuration, attention, experts and the reader that joins them."""

from vlm_operator.sizing.shape.text.config import find_text_config, rope, text_model_type
from vlm_operator.sizing.shape.text.read import FAMILIES, read_text

__all__ = ["FAMILIES", "find_text_config", "read_text", "rope", "text_model_type"]
