"""How a public report is put to the product: an object's spec to the planner, or flags to the engine's start-up."""

import json
from dataclasses import replace
from typing import Any

from vlm_operator.api.validate import Resource, parse_resource
from vlm_operator.catalogue.load import find_gpu, find_model, memory_calibration
from vlm_operator.cli.memory_answer import Asked, bind_model
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.render.engine_args import render_engine_args
from vlm_operator.sizing.inventory import GpuKind, Inventory, kind_from_card
from vlm_operator.sizing.launch import LaunchFlags
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.shape import ModelShape, read_shape
from vlm_operator.sizing.tokens.registry import bind_rule
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings


def declare(model: str, images: dict[str, Any], *, running: int = 1, **spec: Any) -> Resource:
    """Return the object of somebody with these images, 300 tokens of text and answers of up to 500 tokens."""
    workload = {
        "images": images,
        "text": {"promptTokens": {"p50": 300, "p99": 300}},
        "output": {"tokens": {"p50": 200, "max": 500}},
        "traffic": {"concurrentRequests": running},
        **spec.pop("workload", {}),
    }
    document = {
        "apiVersion": "vlm-operator.dev/v1alpha1",
        "kind": "VLMDeployment",
        "metadata": {"name": "case", "namespace": "default", "uid": "c0ffee", "generation": 1},
        "spec": {"model": {"id": model}, "workload": workload, **spec},
    }
    return parse_resource(document)


def pictures(*sizes: tuple[int, int], count: int = 1) -> dict[str, Any]:
    """Return images of these sizes, ``count`` of them in every request."""
    return {
        "sizes": [{"width": width, "height": height} for width, height in sizes],
        "perRequest": [{"count": count}],
    }


def plan(resource: Resource, inventory: Inventory | None = None) -> Plan | NoFit:
    """Return what the planner says, on whatever the catalogue lists unless an inventory is given."""
    return plan_deployment(resource.spec, inventory or catalogue_inventory())


def flags_of(resource: Resource, planned: Plan) -> dict[str, Any]:
    """Return the rendered flags of the engine by name, JSON values read."""
    words = render_engine_args(resource.spec, planned)
    flags: dict[str, Any] = {}
    for name, value in zip(words, [*words[1:], "--"], strict=True):
        if name.startswith("--"):
            flags[name] = True if value.startswith("--") else json.loads(value) if value.startswith("{") else value
    return flags


def shape_of(model: str, **config: Any) -> ModelShape:
    """Return the shape of a checkpoint of the catalogue, with keys of its config.json replaced."""
    card = find_model(model)
    shape = read_shape(card.architecture, {**card.config, **config})
    assert isinstance(shape, ModelShape)
    return shape


def rule_of(model: str, **kwargs: Any) -> ImageRule:
    """Return the counting rule of a checkpoint under ``--mm-processor-kwargs``."""
    card = find_model(model)
    settings = ServerSettings(mm_processor_kwargs=kwargs)
    rule = bind_rule(card.architecture, card.config, card.processor, settings, card.id)
    assert isinstance(rule, ImageRule)
    return rule


def gpu_of(name: str, **changes: Any) -> GpuKind:
    """Return a GPU of the catalogue, figures replaced."""
    return replace(kind_from_card(find_gpu(name)), **changes)


def serve(model: str, gpu: GpuKind, *, videos: int = 0, flags: LaunchFlags | None = None, **kwargs: Any) -> Asked:
    """Return a server that somebody starts by hand: flags, and ``--mm-processor-kwargs``."""
    card = find_model(model)
    return Asked(
        options={"--model": model, "--gpu": gpu.id},
        card=card,
        model=bind_model(card, rule_of(model, **kwargs), videos=videos > 0),
        gpu=gpu,
        gpus_per_node=8,
        flags=replace(flags or LaunchFlags(), videos_per_prompt=videos),
        calibration=memory_calibration(),
    )


def flags_in(planned: Plan) -> LaunchFlags:
    """Return the flags of a plan as somebody would write them by hand."""
    flags = planned.flags
    return LaunchFlags(
        tensor_parallel_size=flags.tensor_parallel_size,
        encoder_mode=flags.encoder_parallel_mode,
        utilization_percent=flags.gpu_memory_utilization_percent,
        max_model_len=flags.max_model_len,
        max_num_seqs=flags.max_num_seqs,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        images_per_prompt=planned.images_per_prompt,
        kv_cache_dtype=flags.kv_cache_dtype,
    )
