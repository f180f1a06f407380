"""``vlmctl tokens``: an image's tokens, one by one or for a file of requests."""

import argparse
import sys
from typing import Any

from vlm_operator.catalogue.load import find_model
from vlm_operator.cli import output
from vlm_operator.cli.inputs import read_lines
from vlm_operator.cli.text import MARGIN, fold
from vlm_operator.errors import InputError, Problem
from vlm_operator.sizing.tokens.registry import bind_rule
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, ServerSettings, TokenRefusal


def run_tokens(arguments: argparse.Namespace) -> int:
    """Print counts; 1 if an image is refused, 2 if the model or the settings are."""
    if arguments.requests is not None:
        if arguments.model or arguments.image:
            raise InputError(
                [Problem(path="", message="--requests names models and images itself; drop --model, --image")]
            )
        return _answer_file(arguments.requests)
    if not arguments.model or not arguments.image:
        raise InputError([Problem(path="", message="name what to count: --model ID --image WxH, or --requests FILE")])
    card = find_model(arguments.model)
    settings = ServerSettings(mm_processor_kwargs=arguments.processor_kwargs, hf_overrides=arguments.hf_overrides)
    rule = bind_rule(card.architecture, card.config, card.processor, settings, card.id)
    if isinstance(rule, TokenRefusal):
        counts: list[ImageTokens | TokenRefusal] = [rule for _ in arguments.image]
    else:
        counts = [rule.count_image(width, height) for width, height in arguments.image]
    documents = [_document(size, item) for size, item in zip(arguments.image, counts, strict=True)]
    if arguments.output != "human":
        body = {"model": card.id, "images": documents, **_maximum_document(rule)}
        output.write_data(body, arguments.output)
    else:
        _print_screen(arguments, counts, rule)
    if isinstance(rule, TokenRefusal):
        return 2
    return int(any(isinstance(item, TokenRefusal) for item in counts))


def _answer_file(file: str) -> int:
    from vlm_operator.cli.tokens import answer_requests  # noqa: PLC0415 - only for a file of requests

    for answer in answer_requests(read_lines(file), find_model):
        sys.stdout.write(answer.rstrip("\n") + "\n")
    return 0


def _document(size: tuple[int, int], item: ImageTokens | TokenRefusal) -> dict[str, Any]:
    width, height = size
    if isinstance(item, TokenRefusal):
        return {"width": width, "height": height, "refused": {"reason": item.reason, "message": item.message}}
    document: dict[str, Any] = {
        "width": width,
        "height": height,
        "embedTokens": item.embed_tokens,
        "placeholderLength": item.placeholder_length,
        "promptTokens": item.prompt_tokens,
        "vitPatches": item.vit_patches,
    }
    if item.resized is not None:
        document["resized"] = {"width": item.resized[0], "height": item.resized[1]}
    if item.tiles is not None:
        document["tiles"] = item.tiles
    return document


def _maximum_document(rule: ImageRule | TokenRefusal) -> dict[str, Any]:
    if isinstance(rule, TokenRefusal):
        return {}
    most = rule.maximum()
    document: dict[str, Any] = {"maximum": {"trueTokens": most.true_tokens, "engineTokens": most.engine_tokens}}
    if rule.ignored_settings:
        document["ignoredSettings"] = list(rule.ignored_settings)
    return document


def _print_screen(
    arguments: argparse.Namespace,
    counts: list[ImageTokens | TokenRefusal],
    rule: ImageRule | TokenRefusal,
) -> None:
    style = output.stdout_style()
    lines: list[str] = []
    for (width, height), item in zip(arguments.image, counts, strict=True):
        if isinstance(item, TokenRefusal):
            first, *rest = fold(f"{width}×{height}: {item.message} ({item.reason})", output.COLUMNS - 2)
            lines.extend([f"{style.paint('bad', '✘')} {first}", *(f"  {row}" for row in rest)])
            continue
        prompt = f"({item.prompt_tokens:,} in the prompt)"
        lines.append(f"{width}×{height} → {style.paint('strong', f'{item.embed_tokens:,} image tokens')} {prompt}")
        if arguments.explain:
            lines.extend(_explain(width, height, item))
    if not isinstance(rule, TokenRefusal):
        if rule.ignored_settings:
            lines.append(f"{MARGIN}the engine ignores {', '.join(rule.ignored_settings)} for this model")
        if arguments.explain:
            lines.extend(_explain_maximum(rule))
    output.write_lines(lines)


def _explain(width: int, height: int, item: ImageTokens) -> list[str]:
    rows = []
    if item.resized is not None:
        stays = item.resized == (width, height)
        rows.append(("resize", f"{width}×{height} stays" if stays else f"→ {item.resized[0]}×{item.resized[1]}"))
    if item.tiles is not None:
        rows.append(("tiles", f"{item.tiles:,} through the vision tower, thumbnail included"))
    rows.append(("patches", f"{item.vit_patches:,} through the vision tower"))
    extra = item.prompt_tokens - item.embed_tokens
    rows.append(("tokens", f"{item.embed_tokens:,} image tokens"))
    rows.append(("markers", f"{extra:,} more in the prompt" if extra else "none"))
    return [f"{MARGIN}{label:<11}{text}" for label, text in rows]


def _explain_maximum(rule: ImageRule) -> list[str]:
    most = rule.maximum()
    width, height = most.dummy_size
    text = f"{most.true_tokens:,} (any image); what the engine reserves for: {most.engine_tokens:,}"
    return [
        f"{MARGIN}{'max here':<11}{text}",
        f"{MARGIN}{'profiled':<11}{width}×{height}, which takes {most.dummy_tokens:,} tokens",
    ]
