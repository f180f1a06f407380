"""The models that published rows name: checkpoints of the catalogue, and decoders without images for this suite only.

A row's model is free text: an id, or the last part of one, with the format of the weights beside it. Formats whose
layout the text does not settle (bitsandbytes, GGUF) make the row unscored.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tests.accuracy.benchmarks import DATA
from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.sizing.legality import derive_max_model_len
from vlm_operator.sizing.shape import ModelShape, Quantisation, ShapeRefusal, TextShape, VisionShape, read_shape
from vlm_operator.sizing.shape.quantisation import read_quantisation
from vlm_operator.sizing.shape.text import read_text
from vlm_operator.sizing.shape.weight import Scheme, Weight
from vlm_operator.sizing.tokens import TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings
from vlm_operator.sizing.tokens.video import VideoRule, bind_video_rule

FP8: Mapping[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
        }
    },
    "ignore": ["lm_head", "re:.*visual.*", "re:.*vision.*", "re:.*mlp1.*", "re:.*gate$", "re:.*projector.*"],
}
INT8: Mapping[str, Any] = {
    **FP8,
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
        }
    },
}
NVFP4: Mapping[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            "input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
        }
    },
    "ignore": ["lm_head", "re:.*visual.*", "re:.*linear_attn.*", "re:.*mlp.gate$", "re:.*shared_expert_gate$"],
}
FORMATS: Mapping[str, Mapping[str, Any]] = {"fp8": FP8, "w8a8": INT8, "nvfp4": NVFP4}
"""How the usual exports store a format that a row names without a file of its own."""

UNSETTLED = ("bnb", "4-bit", "4bit", "gguf", "awq", "gptq", "int4", "w4a16", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model as the sizing engine sees it; no rules where it takes no images.

    ``context`` is the ``max_model_len`` that the engine derives.
    """

    shape: ModelShape
    context: int
    rule: ImageRule | None = None
    video: VideoRule | None = None


def find_published(text: str, max_pixels: int | None = None) -> PublishedModel | None:
    """Return the model that ``text`` names with images up to ``max_pixels``, None where it is not known well enough."""
    exact, name, words = _split(text)
    for spelling in (exact, name):
        served = _find(spelling, model_ids(), ("", "-instruct", "-it"))
        if served is not None:
            said = [word for word in (*FORMATS, *UNSETTLED) if word in words and word not in served.lower()]
            if any(word in UNSETTLED for word in said):
                return None
            return _served(served, said[0] if said else None, max_pixels)
    plain = _find(name, _text_configs(), ("", "-instruct"))
    if plain is None or any(word in words for word in UNSETTLED if word != "mxfp4"):
        return None
    shape = _text_shape(plain, next((word for word in FORMATS if word in words), None))
    return PublishedModel(shape=shape, context=int(_text_configs()[plain]["max_position_embeddings"]))


def _split(text: str) -> tuple[str, str, str]:
    """Return the last part of a model's id, the same without the format of its weights, and all that the row says."""
    words = text.lower()
    first = next(iter(re.sub(r"\(.*?\)", "", words).split()), "")
    exact = first.rsplit("/", 1)[-1]
    name = exact
    for suffix in (r"-fp8(-dynamic)?$", r"-nvfp4$", r"-quantized\.w8a8$", r"-quantized\.w4a16$", r"-bf16$"):
        name = re.sub(suffix, "", name)
    return exact, name, words


def _find(name: str, ids: Iterable[str], endings: Sequence[str]) -> str | None:
    """Return the id whose last part is ``name``, in any of the spellings that rows use."""
    plain = {model.rsplit("/", 1)[-1].lower().replace(".", "_"): model for model in ids}
    spelt = name.replace(".", "_")
    spelt = {"granite-vision-3_3-2b": "granite-vision-3_2-2b", "mimo-vl-7b-sft": "mimo-vl-7b-rl-2508"}.get(spelt, spelt)
    return next((plain[spelt + ending] for ending in endings if spelt + ending in plain), None)


@cache
def _text_configs() -> dict[str, dict[str, Any]]:
    configs: dict[str, dict[str, Any]] = json.loads((DATA / "text_models.json").read_text())
    return configs


@cache
def _served(model_id: str, stated: str | None, max_pixels: int | None) -> PublishedModel | None:
    card = find_model(model_id)
    if stated is None and "quantization_config" not in card.config:  # a card that remembers the format, not the file
        stated = next((name for name in FORMATS if card.dtype.startswith(name)), None)
    config = card.config if stated is None else {**card.config, "quantization_config": FORMATS[stated]}
    shape = read_shape(card.architecture, config)
    if isinstance(shape, ShapeRefusal):
        return None
    settings = ServerSettings(mm_processor_kwargs={} if max_pixels is None else {"max_pixels": max_pixels})
    rule = bind_rule(card.architecture, card.config, card.processor, settings, card.id)
    video = bind_video_rule(card.architecture, card.config, card.processor, settings, card.id)
    length = derive_max_model_len(card.config, None)
    if not isinstance(length, int):
        return None
    return PublishedModel(
        shape=shape,
        context=length,
        rule=None if isinstance(rule, TokenRefusal) else rule,
        video=None if isinstance(video, TokenRefusal) else video,
    )


@cache
def _text_shape(model_id: str, stated: str | None) -> ModelShape:
    config = _text_configs()[model_id]
    if config["model_type"] == "gpt_oss":
        return shape_without_images(model_id, *_gpt_oss(config))
    found = None if stated is None else read_quantisation({"quantization_config": FORMATS[stated]})
    if isinstance(found, ShapeRefusal):
        raise TypeError(found.message)
    return shape_without_images(model_id, read_text(config, 2, found), found)


def shape_without_images(name: str, text: TextShape, quantisation: Quantisation | None) -> ModelShape:
    """Return a language model as a checkpoint without a tower."""
    vision = VisionShape(
        layers=0,
        hidden=0,
        heads=0,
        intermediate=0,
        patch_size=0,
        merge=1,
        out_width=0,
        patch_row=0,
        gated=False,
        split_heads=0,
        weights=(),
    )
    return ModelShape(
        architecture=name,
        text=text,
        vision=vision,
        prefix_lm=False,
        deepstack_levels=0,
        supports_encoder_data_parallel=False,
        dtype="bfloat16",
        quantisation=quantisation,
    )


def _gpt_oss(config: Mapping[str, Any]) -> tuple[TextShape, Quantisation]:
    """Return gpt-oss: experts in MXFP4 (32 values share a byte of scale), one dimension padded to 3,072 on Hopper."""
    plain = {**config, "model_type": "qwen3_moe", "moe_intermediate_size": config["intermediate_size"]}
    plain["num_experts"] = config["num_local_experts"]
    text = read_text(plain, 2, None)
    layers = tuple(range(config["num_hidden_layers"]))
    scheme = Scheme(bits=4, container_bits=8, group_rows=32, group_columns=1, scale_bytes=1)
    hidden, padded = config["hidden_size"], 3072
    experts = tuple(
        Weight(
            part="experts",
            name=name,
            rows=hidden,
            columns=columns,
            split="columns",
            layers=layers,
            experts=config["num_local_experts"],
            scheme=scheme,
        )
        for name, columns in (("gate_up", 2 * padded), ("down", padded))
    )
    kept = tuple(weight for weight in text.weights if weight.part != "experts")
    stored = read_quantisation({"quantization_config": FP8})
    assert isinstance(stored, Quantisation)
    return replace(text, weights=(*kept, *experts)), replace(stored, method="mxfp4", scheme=scheme)
