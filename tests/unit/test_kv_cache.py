"""KV-cache figures that are published or follow from the engine's rules by hand."""

import dataclasses
from collections import Counter

import pytest

from tests.conformance.model_shapes import model_configs, shape_of
from tests.conformance.vectors import DATA
from vlm_operator.cli.main import main
from vlm_operator.sizing.kv_cache import (
    KVLayout,
    KVSettings,
    check_kv_cache,
    kv_bytes_per_token,
    kv_layout,
    lay_out,
    plan_kv_cache,
)
from vlm_operator.sizing.shape import AttentionLayers, ModelShape, StateLayers
from vlm_operator.sizing.shape.text.kv_layers import layer_kinds, read_kv_layers
from vlm_operator.units import GIB

HOPPER = KVSettings(tensor_parallel_size=1, capability=(9, 0))
AMPERE = HOPPER._replace(capability=(8, 0))
LONG = AttentionLayers(kind="FullAttentionSpec", layers=10, kv_heads=8, key_dim=128, value_dim=128)


def _shape(model: str) -> ModelShape:
    shape = shape_of(DATA, model)
    assert shape is not None
    return shape


def _layout(model: str, settings: KVSettings = HOPPER) -> KVLayout:
    return kv_layout(_shape(model), settings)


def test_heads_are_copied_above_their_number() -> None:
    shape = _shape("Qwen/Qwen2.5-VL-72B-Instruct")
    assert [kv_bytes_per_token(shape, size) for size in (1, 4, 8, 16)] == [327_680, 81_920, 40_960, 40_960]


def test_every_rank_holds_a_whole_latent() -> None:
    shape = _shape("moonshotai/Kimi-VL-A3B-Instruct")
    assert {kv_bytes_per_token(shape, size) for size in (1, 2, 8)} == {27 * 576 * 2}


@pytest.mark.parametrize(
    ("model", "tokens", "gib"),
    [  # published start-up logs: KV memory and "GPU KV cache size"; a log rounds its GiB
        ("Qwen/Qwen2.5-VL-7B-Instruct", 33_824, 1.81),
    ],
)
def test_capacity_of_published_start_up_logs(model: str, tokens: int, gib: float) -> None:
    layout = _layout(model, AMPERE)
    plans = [
        plan_kv_cache(
            layout, max_model_len=2048, max_in_flight_tokens=4096, available_bytes=int((gib + off / 1000) * GIB)
        )
        for off in (-5, 5)
    ]
    assert plans[0].tokens <= tokens <= plans[1].tokens


def test_windows_are_driven_by_the_batched_tokens() -> None:
    # Fact sheet 12.11: one request of 32k on Gemma-3-27B, 2,048 and 8,192 batched tokens, and without the manager.
    layout = _layout("google/gemma-3-27b-it")
    whole = _layout("google/gemma-3-27b-it", HOPPER._replace(hybrid_manager=False))
    needed = [
        plan_kv_cache(one, max_model_len=32_768, max_in_flight_tokens=2 * batched, available_bytes=GIB).needed_bytes
        for one, batched in ((layout, 2048), (layout, 8192), (whole, 8192))
    ]
    assert [round(size / GIB, 2) for size in needed] == [4.85, 10.48, 15.5]


def test_a_chunk_takes_no_block_for_its_start() -> None:
    window = AttentionLayers(kind="SlidingWindowSpec", layers=30, kv_heads=8, key_dim=128, value_dim=128, reach=1024)
    chunk = dataclasses.replace(window, kind="ChunkedLocalAttentionSpec")
    counted = [lay_out((one, LONG), HOPPER).blocks_per_group(100_000, 4096)[0] for one in (window, chunk)]
    assert counted == [-(-(1023 + 4096) // 16) + 1, -(-(1024 + 4096) // 16)]


@pytest.mark.parametrize(
    ("capability", "prefix_caching", "block", "states"),
    [  # fact sheet 12.2
        ((9, 0), True, 576, 3),
        ((8, 0), True, 528, 2),
        ((8, 9), True, 528, 2),
        ((9, 0), False, 528, 1),
    ],
)
def test_blocks_hold_the_state_of_a_gated_delta_net(
    capability: tuple[int, int],
    prefix_caching: bool,  # noqa: FBT001 - a table's column
    block: int,
    states: int,
) -> None:
    settings = HOPPER._replace(capability=capability, prefix_caching=prefix_caching)
    layout = _layout("Qwen/Qwen3.5-9B", settings)
    assert layout.block_tokens == block
    assert layout.blocks_per_group(block, 4096) == [states, states, states, 1]
    assert layout.least_step == (block if prefix_caching else 1)


def test_a_step_that_holds_no_block_of_states_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["memory", "--model", "Qwen/Qwen3.5-9B", "--gpu", "h100-80gb-sxm", "--max-num-seqs", "64"]
    assert main([*given, "--max-num-batched-tokens", "512"]) == 1
    assert "512 batched tokens do not hold one block of 576" in capsys.readouterr().out
    assert main([*given, "--max-num-batched-tokens", "576"]) == 0


def test_mixers_share_groups_of_bc_only_as_far_as_they_go() -> None:
    mixer = StateLayers(
        kernel="mamba2", layers=1, conv_rows=3, conv_columns=1024, group_columns=256, groups=1, recurrent=0
    )
    assert mixer.bytes_on(1, 2) == 3 * (1024 + 256) * 2
    assert mixer.bytes_on(4, 2) == 3 * (1024 // 4 + 256) * 2


def test_nemotron_mixers_take_the_page_of_its_attention() -> None:
    layout = _layout("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16")
    state = 3 * (128 * 80 + 2 * 8 * 128) * 2 + 128 * 80 * 128 * 4
    assert layout.block_tokens == -(-state // (16 * 4096)) * 16
    assert [(group.kind, group.layers) for group in layout.groups] == [
        ("MambaSpec", (6, 6, 6, 5, 5)),
        ("FullAttentionSpec", (6,)),
    ]


@pytest.mark.parametrize(
    ("model", "dtype", "capability", "block"),
    [
        ("google/gemma-4-31B-it", "fp8", (9, 0), 64),
        ("google/gemma-4-31B-it", "auto", (9, 0), 16),
        ("google/gemma-4-31B-it", "fp8", (8, 9), 16),
        ("google/gemma-3-4b-it", "fp8", (9, 0), 16),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "auto", (9, 0), 64),  # its checkpoint asks for FP8 keys
        ("moonshotai/Kimi-VL-A3B-Instruct", "fp8", (9, 0), 64),
        ("moonshotai/Kimi-VL-A3B-Instruct", "auto", (9, 0), 16),
    ],
)
def test_backends_ask_for_wide_blocks(model: str, dtype: str, capability: tuple[int, int], block: int) -> None:
    settings = HOPPER._replace(dtype=dtype, capability=capability)
    assert _layout(model, settings).block_tokens == block


def test_pages_that_are_no_multiple_are_padded() -> None:
    odd = AttentionLayers(kind="SlidingWindowSpec", layers=10, kv_heads=3, key_dim=128, value_dim=128, reach=512)
    layout = lay_out((odd, LONG), HOPPER)
    assert {group.spec.page_bytes for group in layout.groups} == {16 * 8 * 256 * 2}
    assert {group.spec.block_tokens for group in layout.groups} == {16}


@pytest.mark.parametrize(
    ("full", "windows", "groups"),
    [  # the engine's own example is (13, 12); below 1.5 times the smaller number the larger one is the group
        (13, 12, {13: 1, 12: 1}),
        (29, 20, {29: 1, 20: 1}),
        (30, 20, {15: 2, 20: 1}),
        (10, 50, {10: 6}),
    ],
)
def test_kinds_of_nearly_as_many_layers_are_padded_and_others_are_cut(
    full: int, windows: int, groups: dict[int, int]
) -> None:
    local = dataclasses.replace(LONG, kind="SlidingWindowSpec", reach=512, layers=windows)
    layout = lay_out((dataclasses.replace(LONG, layers=full), local), HOPPER)
    assert Counter(layers for group in layout.groups for layers in group.layers) == groups


def test_layers_that_differ_only_in_their_heads_share_one_table() -> None:
    narrow = dataclasses.replace(LONG, kv_heads=2, layers=4)
    layout = lay_out((LONG, narrow), HOPPER)
    assert layout.group_count == 1
    assert layout.bytes_per_block == 16 * (10 * 8 + 4 * 2) * 256 * 2
    assert layout.groups[0].kind == "UniformTypeKVCacheSpecs"


@pytest.mark.parametrize(
    ("dtype", "bytes_per_head"),
    [("auto", 512), ("fp8", 256), ("int8_per_token_head", 264), ("int4_per_token_head", 136), ("nvfp4", 144)],
)
def test_bytes_by_type(dtype: str, bytes_per_head: int) -> None:
    # Fact sheet 3.1, a head of 128.
    layout = lay_out((LONG,), HOPPER._replace(dtype=dtype))
    assert layout.bytes_per_block == 10 * 16 * 8 * bytes_per_head


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", AMPERE._replace(dtype="fp8"), "8.9"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", HOPPER._replace(dtype="nvfp4"), "10.0"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", HOPPER._replace(dtype="float16"), "bfloat16"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", HOPPER._replace(dtype="turboquant_k8v4"), "no known size"),
        ("nvidia/Gemma-4-31B-IT-NVFP4", AMPERE, "8.9"),
        ("moonshotai/Kimi-VL-A3B-Instruct", HOPPER._replace(dtype="int8_per_token_head"), "latent"),
        ("Qwen/Qwen3.5-9B", HOPPER._replace(hybrid_manager=False), "hybrid"),
    ],
)
def test_what_the_engine_refuses_is_refused_with_a_reason(model: str, settings: KVSettings, words: str) -> None:
    refused = check_kv_cache(_shape(model), settings)
    assert refused is not None
    assert words in refused.message


def test_shared_layers_keep_nothing() -> None:
    # Gemma-4-E4B: 42 layers, of which the last 18 read keys of earlier ones; Gemma-3n: 35 and 15.
    kept = {
        model: sum(layers.layers for layers in read_kv_layers(model_configs(DATA)[model]["config"]))
        for model in ("google/gemma-4-E4B-it", "google/gemma-3n-E4B-it")
    }
    assert kept == {"google/gemma-4-E4B-it": 24, "google/gemma-3n-E4B-it": 20}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ({"num_hidden_layers": 4, "sliding_window": 8}, ["SlidingWindowSpec"]),
        ({"num_hidden_layers": 4, "sliding_window": 8, "use_sliding_window": False}, ["FullAttentionSpec"]),
        ({"num_hidden_layers": 4, "sliding_window": None}, ["FullAttentionSpec"]),
        (
            {"num_hidden_layers": 4, "sliding_window": 8, "sliding_window_pattern": 2},
            ["SlidingWindowSpec", "FullAttentionSpec"],
        ),
    ],
)
def test_a_window_belongs_to_every_layer_unless_kinds_are_mixed(text: dict[str, object], kinds: list[str]) -> None:
    sizes = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    found = read_kv_layers({"text_config": {**sizes, **text}})
    assert [layers.kind for layers in found if isinstance(layers, AttentionLayers)] == kinds


def test_rotation_tells_the_chunked_layers_of_llama_4() -> None:
    text = {"num_hidden_layers": 8, "no_rope_layers": [], "no_rope_layer_interval": 4}
    kinds = layer_kinds("llama4_text", text)
    assert [i for i, kind in enumerate(kinds) if kind == "full_attention"] == [3, 7]
    assert layer_kinds("llama4_text", {**text, "no_rope_layers": [0, 1] * 4})[:2] == (
        "full_attention",
        "chunked_attention",
    )
