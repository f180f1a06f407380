"""``vlmctl memory``: where one GPU's memory goes when a server starts with given flags, and whether it starts."""

import argparse
from typing import NoReturn

from vlm_operator.catalogue.labels import parse_product_label
from vlm_operator.catalogue.load import find_gpu, memory_calibration
from vlm_operator.catalogue.types import GpuCard, ModelCard
from vlm_operator.cli import output
from vlm_operator.cli.memory_answer import Asked, bind_model
from vlm_operator.cli.memory_arguments import given_options
from vlm_operator.cli.models import named_card
from vlm_operator.cli.token_answer import no_cap_message
from vlm_operator.errors import InputError, Problem
from vlm_operator.sizing.inventory import GpuKind, GpuRefusal, kind_from_card, kind_from_label
from vlm_operator.sizing.launch import ENGINE_UTILIZATION_PERCENT, Launched, LaunchFlags
from vlm_operator.sizing.tokens.registry import bind_rule, refuse_dropped
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings, TokenRefusal


def run_memory(arguments: argparse.Namespace) -> int:
    """Print the memory of one GPU; 1 if the server would not start, 2 if the model, GPU or settings are wrong."""
    asked = _asked(arguments)
    launched = asked.launch()
    if arguments.output == "human":
        from vlm_operator.cli.memory_screen import memory_screen  # noqa: PLC0415 - machine formats need no screen

        output.write_lines(memory_screen(asked, launched, output.stdout_style()))
    else:
        from vlm_operator.cli.memory_document import memory_document  # noqa: PLC0415

        output.write_data(memory_document(asked, launched), arguments.output)
    return int(not isinstance(launched, Launched) or launched.begun.misfit is not None)


def _asked(arguments: argparse.Namespace) -> Asked:
    model = arguments.model or arguments.model_dir
    if not model:
        _wrong("name the model: --model ID, or --model-dir DIR")
    card = named_card(model, arguments.source, arguments.model_dir)
    gpu_card, gpu = _find_gpu(arguments.gpu)
    settings = ServerSettings(
        mm_processor_kwargs=arguments.processor_kwargs,
        hf_overrides=arguments.hf_overrides,
        max_model_len=arguments.max_model_len,
    )
    rule = _capped(_rule(card, settings), arguments.cap, card.id)
    flags = LaunchFlags(
        tensor_parallel_size=arguments.tp,
        encoder_mode=arguments.encoder_mode,
        utilization_percent=arguments.utilization or ENGINE_UTILIZATION_PERCENT,
        max_model_len=arguments.max_model_len,
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        images_per_prompt=arguments.images_per_request,
        videos_per_prompt=arguments.videos_per_request,
        kv_cache_dtype=arguments.kv_cache_dtype,
    )
    return Asked(
        options=given_options(arguments),
        card=card,
        model=bind_model(card, rule, videos=arguments.videos_per_request > 0),
        gpu=gpu,
        gpus_per_node=gpu_card.max_gpus_per_node,
        flags=flags,
        calibration=memory_calibration(),
    )


def _find_gpu(name: str) -> tuple[GpuCard, GpuKind]:
    """Return the card and the kind under a catalogue id or a product label, that of a MIG instance included."""
    label = parse_product_label(name)
    card = find_gpu(label.product)
    kind = kind_from_card(card) if name == card.id else kind_from_label(card, label, name)
    if isinstance(kind, GpuRefusal):
        _wrong(f"--gpu {name}: {kind.message}")
    return card, kind


def _rule(card: ModelCard, settings: ServerSettings) -> ImageRule:
    dropped = refuse_dropped(card.architecture, card.id)
    rule = dropped or bind_rule(card.architecture, card.config, card.processor, settings, card.id)
    if isinstance(rule, TokenRefusal):
        _wrong(rule.message)
    return rule


def _capped(rule: ImageRule, value: int | None, model_id: str) -> ImageRule:
    if value is None:
        return rule
    cap = rule.cap
    if cap is None:
        _wrong(no_cap_message(model_id))
    if value == cap.value:
        return rule
    if value not in cap.tighter:
        nearest = min(cap.tighter, key=lambda known: abs(known - value), default=cap.value)
        _wrong(f"--cap {value}: {cap.name} of {model_id} takes other values; nearest: {nearest}")
    return rule.with_cap(value)


def _wrong(message: str) -> NoReturn:
    raise InputError([Problem(path="", message=message)])
