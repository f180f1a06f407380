"""Mistral's own params.json in the words of config.json, as the engine reads it with ``--config-format mistral``.

Source: vLLM ``transformers_utils/configs/mistral.py``. Called by ``card`` where a model has no config.json.
"""

from collections.abc import Mapping
from typing import Any, Final

_NAMES: Final[Mapping[str, str]] = {
    "dim": "hidden_size",
    "norm_eps": "rms_norm_eps",
    "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "tied_embeddings": "tie_word_embeddings",
}
_CONTEXT: Final = 128_000
"""The engine's own default where neither file names a longest context."""


def config_of_params(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the configuration of an image model in Mistral's format; None where there is no vision encoder."""
    nested = params.get("multimodal")
    encoder = (nested.get("vision_encoder_args") if isinstance(nested, Mapping) else None) or params.get(
        "vision_encoder"
    )
    if not isinstance(encoder, Mapping):
        return None
    text = {_NAMES.get(key, key): value for key, value in params.items() if key not in {"multimodal", "vision_encoder"}}
    text = {"max_position_embeddings": _CONTEXT, "sliding_window": None, **text, "model_type": "mistral"}
    config: dict[str, Any] = {
        "architectures": ["PixtralForConditionalGeneration"],
        "model_type": "pixtral",
        "text_config": text,
        "vision_config": dict(encoder),
    }
    quantisation = text.pop("quantization", None)
    if quantisation:
        config["quantization_config"] = _quantisation(quantisation)
    return config


def _quantisation(stated: Any) -> Any:
    """Return how the matrices are stored in the words of config.json; the engine never stores a tower smaller."""
    if not isinstance(stated, Mapping) or stated.get("qformat_weight") != "fp8_e4m3":
        return stated
    dynamic = stated.get("qscheme_act") == "NO_SCALES"
    return {
        "quant_method": "fp8",
        "activation_scheme": "dynamic" if dynamic else "static",
        "modules_to_not_convert": ["vision_encoder", "multi_modal_projector"],
    }
