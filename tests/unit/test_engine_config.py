"""Rendered command lines, read back the way the engine reads them."""

from pathlib import Path

import pytest

from vlm_operator.api.validate import Resource, load_resources
from vlm_operator.catalogue.load import find_engine, find_gpu, find_model
from vlm_operator.engine.command_line import CommandLineRefusal, parse_command_line
from vlm_operator.engine.config import EngineConfig, resolve_config
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.render.engine_args import limit_mm_per_prompt, render_engine_args
from vlm_operator.sizing.inventory import kind_from_card
from vlm_operator.sizing.plan import Plan
from vlm_operator.sizing.shape import ModelShape, read_shape

SAMPLES = sorted((Path(__file__).parents[2] / "manifests" / "samples").glob("*.yaml"))
RESOURCES = [resource for path in SAMPLES for resource in load_resources(path.read_text(), path.name)]
ENGINE = find_engine("0.33.0")


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.name)
def test_the_engine_makes_of_rendered_flags_what_the_plan_says(resource: Resource) -> None:
    plan = plan_deployment(resource.spec, catalogue_inventory())
    if not isinstance(plan, Plan):
        assert resource.name == "nofit"
        return
    values = parse_command_line(render_engine_args(resource.spec, plan), ENGINE)
    assert not isinstance(values, CommandLineRefusal), values
    card = find_model(plan.model_id)
    shape = read_shape(card.architecture, card.config)
    assert isinstance(shape, ModelShape)
    config = resolve_config(values, ENGINE, card, shape, kind_from_card(find_gpu(plan.gpu.id)))
    assert isinstance(config, EngineConfig), config
    flags = plan.flags
    assert config.max_model_len == flags.max_model_len
    assert (config.max_num_batched_tokens, config.max_num_seqs) == (flags.max_num_batched_tokens, flags.max_num_seqs)
    assert config.gpu_memory_utilization == flags.gpu_memory_utilization_percent / 100
    assert config.tensor_parallel_size == flags.tensor_parallel_size
    assert config.mm_encoder_tp_mode == flags.encoder_parallel_mode
    assert (config.mm_processor_kwargs or {}) == dict(flags.mm_processor_kwargs)
    limits = limit_mm_per_prompt(flags)
    assert config.limits["image"] == (
        limits["image"]["count"] if isinstance(limits["image"], dict) else limits["image"]
    )
    assert config.limits["video"] == config.limits["audio"] == 0
