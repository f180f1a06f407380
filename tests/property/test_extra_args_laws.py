"""Laws of the arguments that a user adds: the engine reads from the rendered command line what the plan says."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.test_plan_laws import inventory, parse, specs
from vlm_operator.catalogue.load import find_engine, find_model
from vlm_operator.engine.command_line import CommandLineRefusal, parse_command_line
from vlm_operator.engine.config import EngineConfig, resolve_config
from vlm_operator.planning import plan_deployment
from vlm_operator.render.engine_args import limit_mm_per_prompt, render_engine_args
from vlm_operator.sizing.plan import Plan
from vlm_operator.sizing.shape import ModelShape, read_shape

ENGINE = find_engine("0.33.0")
OBEYED = {
    "--tensor-parallel-size": st.sampled_from([1, 2, 4]),
    "--max-model-len": st.integers(8000, 60_000),
    "--max-num-seqs": st.integers(8, 300),
    "--max-num-batched-tokens": st.integers(1024, 20_000),
    "--gpu-memory-utilization": st.integers(60, 95).map(lambda percent: percent / 100),
    "--kv-cache-dtype": st.sampled_from(["auto", "fp8", "fp8_e5m2"]),
    "--mm-encoder-tp-mode": st.sampled_from(["weights", "data"]),
}
PASSED = {
    "--seed": st.integers(0, 2**32 - 1),
    "--default-chat-template-kwargs": st.dictionaries(st.text(max_size=5), st.text(max_size=5)).map(json.dumps),
    "--chat-template": st.text(min_size=1, max_size=20).filter(lambda text: "$" not in text and text != "None"),
    "--uvicorn-log-level": st.just("warning"),
}


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from([*OBEYED, *PASSED]), min_size=1, max_size=4, unique=True))
    return {name: draw({**OBEYED, **PASSED}[name]) for name in names}


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(specs(), arguments())
def test_the_engine_runs_with_the_asked_values_and_the_plans_numbers(
    document: dict[str, Any], asked: dict[str, Any]
) -> None:
    spec = parse({**document, "engine": {"extraArgs": [f"{name}={value}" for name, value in asked.items()]}})
    plan = plan_deployment(spec, inventory(), simulate=False)
    if not isinstance(plan, Plan):
        assert plan.message
        return
    values = parse_command_line(render_engine_args(spec, plan), ENGINE)
    assert not isinstance(values, CommandLineRefusal), values
    card, gpu = find_model(plan.model_id), plan.gpu
    shape = read_shape(card.architecture, card.config)
    assert isinstance(shape, ModelShape)
    config = resolve_config(values, ENGINE, card, shape, gpu)
    assert isinstance(config, EngineConfig), config
    flags = plan.flags
    found = {
        "--tensor-parallel-size": config.tensor_parallel_size,
        "--max-model-len": config.max_model_len,
        "--max-num-seqs": config.max_num_seqs,
        "--max-num-batched-tokens": config.max_num_batched_tokens,
        "--gpu-memory-utilization": config.gpu_memory_utilization,
        "--kv-cache-dtype": config.kv_cache_dtype,
        "--mm-encoder-tp-mode": config.mm_encoder_tp_mode,
    }
    assert found == {
        "--tensor-parallel-size": flags.tensor_parallel_size,
        "--max-model-len": flags.max_model_len,
        "--max-num-seqs": flags.max_num_seqs,
        "--max-num-batched-tokens": flags.max_num_batched_tokens,
        "--gpu-memory-utilization": flags.gpu_memory_utilization_percent / 100,
        "--kv-cache-dtype": flags.kv_cache_dtype,
        "--mm-encoder-tp-mode": flags.encoder_parallel_mode,
    }
    assert {name: value for name, value in asked.items() if name in OBEYED}.items() <= found.items()
    for name in set(asked) & set(PASSED):
        value = values[name.removeprefix("--").replace("-", "_")]
        assert value == (json.loads(asked[name]) if isinstance(value, dict) else asked[name])
    image = limit_mm_per_prompt(flags)["image"]
    assert config.limits == {"image": image["count"], "video": 0, "audio": 0}
