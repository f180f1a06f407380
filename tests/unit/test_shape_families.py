"""Which architectures have shapes, and what their files say in more than one way."""

from typing import Any

import pytest

from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.hub.mistral import config_of_params
from vlm_operator.sizing.legality import check_tensor_parallel
from vlm_operator.sizing.shape import (
    ARCHITECTURES,
    UNSIZED,
    AttentionLayers,
    ModelShape,
    ShapeRefusal,
    StateLayers,
    read_shape,
)
from vlm_operator.sizing.tokens.registry import BUILDERS
from vlm_operator.sizing.tokens.uncounted import DROPPED
from vlm_operator.sizing.weights import count_parameters, count_stored_elements, weights_per_rank

TEXT: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "head_dim": 64,
}
VISION: dict[str, Any] = {
    "hidden_size": 256,
    "depth": 4,
    "num_heads": 8,
    "intermediate_size": 512,
    "out_hidden_size": 1024,
}
AUDIO: dict[str, Any] = {
    "d_model": 320,
    "encoder_layers": 3,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 512,
    "output_dim": 1024,
}
OMNI: dict[str, Any] = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "text_config": {
            **TEXT,
            "model_type": "qwen3_omni_moe_text",
            "num_experts": 16,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 256,
        },
        "vision_config": {**VISION, "deepstack_visual_indexes": [0, 1, 2]},
        "audio_config": AUDIO,
    },
}
NEMOTRON: dict[str, Any] = {
    **TEXT,
    "model_type": "nemotron_h",
    "num_hidden_layers": 6,
    "mamba_num_heads": 16,
    "mamba_head_dim": 64,
    "ssm_state_size": 32,
    "n_groups": 8,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 256,
    "moe_shared_expert_intermediate_size": 512,
}


def _read(architecture: str, config: dict[str, Any]) -> ModelShape:
    shape = read_shape(architecture, config)
    assert isinstance(shape, ModelShape), shape.message
    return shape


def _card(model: str) -> ModelCard:
    card = find_model(model)
    assert card is not None
    return card


def test_every_counted_architecture_is_sized_or_refused_by_name() -> None:
    assert BUILDERS.keys() - DROPPED.keys() == ARCHITECTURES.keys() | UNSIZED.keys()
    assert not ARCHITECTURES.keys() & UNSIZED.keys()


@pytest.mark.parametrize("architecture", sorted(UNSIZED))
def test_a_refusal_says_why(architecture: str) -> None:
    refused = read_shape(architecture, {})
    assert isinstance(refused, ShapeRefusal)
    assert refused.reason == "ArchitectureNotSized"
    assert refused.message.startswith(f"{architecture} cannot be sized: ")


QUANTISED = ("awq", "fp8", "gptq", "int4", "int8", "nvfp4", "see quantization_config")
"""How the text of a card's number format begins where its matrices are stored in a smaller one."""


@pytest.mark.parametrize("model", model_ids())
def test_what_a_card_says_of_its_format_stands_in_its_configuration(model: str) -> None:
    card = _card(model)
    text = card.config.get("text_config") or {}
    stated = bool(card.config.get("quantization_config") or text.get("quantization_config"))
    assert stated == card.dtype.startswith(QUANTISED)


def test_the_scales_of_maverick_are_those_that_its_published_total_has_more() -> None:
    plain = _card("meta-llama/Llama-4-Maverick-17B-128E-Instruct")
    stored = _card("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8")
    assert stored.parameters is not None
    assert plain.parameters is not None
    shape = _read(stored.architecture, stored.config)
    scales = count_stored_elements(shape).parts_total - count_parameters(shape).total
    assert scales == stored.parameters - plain.parameters == 66_060_288


def test_ministral_is_stored_in_fp8_and_its_tower_is_not() -> None:
    card = _card("mistralai/Ministral-3-8B-Instruct-2512")
    plain = {key: value for key, value in card.config.items() if key != "quantization_config"}
    stored, whole = (
        weights_per_rank(_read(card.architecture, card.config), 1),
        weights_per_rank(_read(card.architecture, plain), 1),
    )
    assert stored.mlp / whole.mlp == pytest.approx(0.5, rel=1e-4)
    assert (stored.encoder, stored.embedding, stored.lm_head) == (whole.encoder, whole.embedding, whole.lm_head)


def test_published_totals_of_models_whose_files_are_remembered() -> None:
    # Aria: 25.3 billion; MiniCPM-V 4.6: 1.3 billion; the model cards on the hub.
    for model, billions in (("rhymes-ai/Aria", 25.3), ("openbmb/MiniCPM-V-4_6", 1.3)):
        card = _card(model)
        assert round(count_parameters(_read(card.architecture, card.config)).total / 1e9, 1) == billions


def test_the_last_layers_of_gemma_3n_keep_nothing() -> None:
    card = _card("google/gemma-3n-E4B-it")
    kept = _read(card.architecture, card.config).text.kv_layers
    assert [(layers.layers, layers.reach) for layers in kept if isinstance(layers, AttentionLayers)] == [
        (16, 512),
        (4, 0),
    ]


def test_layers_of_gemma_3n_may_differ_in_width() -> None:
    card = _card("google/gemma-3n-E4B-it")
    text = card.config["text_config"]
    widths = [8192] * 10 + [16384] * 25
    narrower = _read(card.architecture, {**card.config, "text_config": {**text, "intermediate_size": widths}})
    whole = _read(card.architecture, card.config)
    less = count_parameters(whole).mlp - count_parameters(narrower).mlp
    assert less == 10 * 3 * 2048 * 8192


def test_layers_follow_the_interval_where_a_file_lists_none() -> None:
    card = _card("openbmb/MiniCPM-V-4_6")
    kept = _read(card.architecture, card.config).text.kv_layers
    assert [(type(layers), layers.layers) for layers in kept] == [(StateLayers, 18), (AttentionLayers, 6)]


def test_omni_is_read_from_its_thinker() -> None:
    shape = _read("Qwen3OmniMoeForConditionalGeneration", OMNI)
    assert (shape.text.hidden, shape.text.experts, shape.deepstack_levels) == (1024, 16, 3)
    assert shape.vision.out_width == 4 * 1024
    assert weights_per_rank(shape, 1).audio > 0


@pytest.mark.parametrize(("size", "rules"), [(1, set()), (4, set()), (8, {"audio_heads"})])
def test_heads_of_an_audio_encoder_must_divide(size: int, rules: set[str]) -> None:
    shape = _read("Qwen3OmniMoeForConditionalGeneration", OMNI)
    assert {violation.rule for violation in check_tensor_parallel(shape, size)} == rules


def test_letters_and_words_of_nemotron_name_the_same_layers() -> None:
    tower = {"args": {"model": "vit_small_patch16_224"}}
    base = {"projector_hidden_size": 512, "vit_hidden_size": 384, "vision_config": tower}
    words = ["mamba", "mlp", "mamba", "attention", "mamba", "moe"]
    spelled = [
        _read("NemotronH_Omni_Reasoning_V3", {**base, "llm_config": {**NEMOTRON, **layers}})
        for layers in ({"hybrid_override_pattern": "M-M*ME"}, {"layers_block_type": words})
    ]
    assert spelled[0] == spelled[1]
    assert count_parameters(spelled[0]).experts == 16 * 2 * 1024 * 256
    assert [layers.layers for layers in spelled[0].text.kv_layers] == [3, 1]


def test_mistrals_own_file_states_fp8_in_its_own_words() -> None:
    params = _card("mistralai/Pixtral-12B-2409").config["_mistral_params"]
    plain = config_of_params(params)
    stored = config_of_params({**params, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}})
    assert plain is not None
    assert stored is not None
    whole, small = (weights_per_rank(_read("PixtralForConditionalGeneration", found), 1) for found in (plain, stored))
    assert small.mlp / whole.mlp == pytest.approx(0.5, rel=1e-4)
    assert (small.encoder, small.embedding) == (whole.encoder, whole.embedding)


def test_mistrals_own_file_and_its_conversion_hold_the_same_pixtral() -> None:
    card = _card("mistralai/Pixtral-12B-2409")
    found = _read(card.architecture, card.config)
    assert count_parameters(found).total == card.parameters
    assert [layers.reach for layers in found.text.kv_layers if isinstance(layers, AttentionLayers)] == [0]
