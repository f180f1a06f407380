"""``vlmctl tokens``: the tokens of images, one by one, of a folder or a list, or for a file of requests."""

import argparse
import sys
from typing import NoReturn

from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cli import output
from vlm_operator.cli.inputs import read_lines
from vlm_operator.cli.models import named_card
from vlm_operator.errors import InputError, Problem
from vlm_operator.sizing.tokens.registry import bind_rule
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings, TokenRefusal


def run_tokens(arguments: argparse.Namespace) -> int:
    """Print counts; 1 if an image is broken or refused or no cap works, 2 if the model or the settings are."""
    given = [flag for flag in ("image", "images", "sizes") if getattr(arguments, flag)]
    if arguments.requests is not None:
        if arguments.model or arguments.model_dir or given:
            _wrong("--requests names models and images itself; drop --model and " + _flags(given or ["image"]))
        return _answer_file(arguments.requests, arguments.source)
    model = arguments.model or arguments.model_dir
    if not model or not given:
        _wrong("name what to count: --model ID with --image WxH, --images DIR or --sizes FILE; or --requests FILE")
    if len(given) > 1:
        _wrong(f"{_flags(given)} name the images twice; keep one of them")
    card = named_card(model, arguments.source, arguments.model_dir)
    settings = ServerSettings(mm_processor_kwargs=arguments.processor_kwargs, hf_overrides=arguments.hf_overrides)
    rule = bind_rule(card.architecture, card.config, card.processor, settings, card.id)
    if isinstance(rule, TokenRefusal):
        return _refuse(arguments, card.id, rule)
    return _answer(arguments, card, rule)


def _answer(arguments: argparse.Namespace, card: ModelCard, rule: ImageRule) -> int:
    from vlm_operator.cli import image_sizes  # noqa: PLC0415 - a file of requests needs none of these
    from vlm_operator.cli.token_answer import Answer, find_floor, notes_of  # noqa: PLC0415
    from vlm_operator.cli.token_mix import count_mix, trade_off  # noqa: PLC0415

    if arguments.images:
        sizes, source = image_sizes.read_folder(arguments.images), arguments.images
    elif arguments.sizes:
        sizes, source = image_sizes.read_list(arguments.sizes), arguments.sizes
    else:
        sizes, source = image_sizes.listed(arguments.image), "the command line"
    mix = count_mix(rule, sizes.counts)
    floors = {"min_pixels": arguments.min_pixels, "min_tokens": arguments.min_tokens}
    answer = Answer(
        model=card.id,
        rule=rule,
        notes=notes_of(card, rule),
        sizes=sizes,
        mix=mix,
        each=arguments.image,
        source="standard input" if source == "-" else source,
        explain=arguments.explain,
        over_cap=arguments.over_cap,
        trade=trade_off(rule, mix) if arguments.over_cap else (),
        floor=find_floor(rule, mix, **floors) if any(floors.values()) else None,
    )
    if arguments.output == "human":
        from vlm_operator.cli.tokens_screen import screen_of  # noqa: PLC0415

        output.write_lines(screen_of(answer, output.stdout_style()))
    else:
        from vlm_operator.cli.tokens_document import document_of  # noqa: PLC0415

        output.write_data(document_of(answer), arguments.output)
    return 0 if answer.complete else 1


def _refuse(arguments: argparse.Namespace, model: str, refusal: TokenRefusal) -> int:
    """Say why the settings, or the model, are refused for every image."""
    if arguments.output == "human":
        from vlm_operator.cli.tokens_screen import refused_screen  # noqa: PLC0415

        output.write_lines(refused_screen(refusal, output.stdout_style()))
    else:
        from vlm_operator.cli.tokens_document import refused_document  # noqa: PLC0415

        output.write_data(refused_document(model, arguments.image, refusal), arguments.output)
    return 2


def _answer_file(file: str, source: str) -> int:
    from vlm_operator.cli.tokens import answer_requests  # noqa: PLC0415 - only for a file of requests

    for answer in answer_requests(read_lines(file), lambda model_id: named_card(model_id, source)):
        sys.stdout.write(answer.rstrip("\n") + "\n")
    return 0


def _wrong(message: str) -> NoReturn:
    raise InputError([Problem(path="", message=message)])


def _flags(names: list[str]) -> str:
    return " and ".join(f"--{name}" for name in names)
