"""The answer of ``vlmctl tokens`` as a document for JSON and YAML: all that the screen says, in camelCase."""

from typing import Any

from vlm_operator.cli.image_sizes import Size
from vlm_operator.cli.token_answer import Answer, Floor, no_cap_message
from vlm_operator.cli.token_mix import Step, figures, histogram
from vlm_operator.sizing.tokens.rule_of_thumb import PATCH_SIZE, TILE_SIZE, estimate_tiles
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, TokenRefusal


def document_of(answer: Answer) -> dict[str, Any]:
    """Return the document of an answer."""
    document: dict[str, Any] = {"model": answer.model}
    if answer.each:
        counts = [answer.rule.count_image(*size) for size in answer.each]
        document["images"] = [_image(answer.rule, size, count) for size, count in zip(answer.each, counts, strict=True)]
    else:
        document |= _summary(answer)
    document |= _rule(answer.rule)
    if answer.notes:
        document["notes"] = list(answer.notes)
    if answer.over_cap:
        document["caps"] = [_step(step) for step in answer.trade]
    if answer.floor is not None:
        document["tightestCap"] = _floor(answer.floor)
    if answer.no_cap:
        document["noCap"] = no_cap_message(answer.model)
    return document


def refused_document(model: str, sizes: list[Size], refusal: TokenRefusal) -> dict[str, Any]:
    """Return the document of settings that are refused as a whole."""
    if not sizes:
        return {"model": model, "refused": {"reason": refusal.reason, "message": refusal.message}}
    return {"model": model, "images": [_refused(size, refusal) for size in sizes]}


def _image(rule: ImageRule, size: Size, item: ImageTokens | TokenRefusal) -> dict[str, Any]:
    if isinstance(item, TokenRefusal):
        return _refused(size, item)
    document: dict[str, Any] = {
        **_size(size),
        "embedTokens": item.embed_tokens,
        "placeholderLength": item.placeholder_length,
        "promptTokens": item.prompt_tokens,
        "vitPatches": item.vit_patches,
    }
    if item.resized is not None:
        document["resized"] = _size(item.resized)
    if item.tiles is not None:
        document["tiles"] = item.tiles
    if item.grid is not None:
        document["grid"] = {"columns": item.grid[0], "rows": item.grid[1]}
    estimate = estimate_tiles(*size)
    document["ruleOfThumb"] = {
        "tileSize": TILE_SIZE,
        "patchSize": PATCH_SIZE,
        "tiles": estimate.tiles,
        "tokens": estimate.tokens,
    }
    document["parts"] = [
        {"label": part.label, "count": part.count, "tokensEach": part.tokens, "embedded": part.embedded}
        for part in rule.parts(item)
        if part.count
    ]
    return document


def _summary(answer: Answer) -> dict[str, Any]:
    mix, embed = answer.mix, answer.mix.embed_tokens()
    return {
        "source": answer.source,
        "imagesCounted": mix.images,
        "embedTokens": figures(embed),
        "promptTokens": figures(mix.prompt_tokens()),
        "histogram": [{"from": bar.low, "to": bar.high, "images": bar.images} for bar in histogram(embed)]
        if embed
        else [],
        "refused": [_refused(size, refusal) | {"images": images} for size, refusal, images in mix.refused],
        "unreadable": list(answer.sizes.unreadable),
        "otherFiles": answer.sizes.skipped,
    }


def _rule(rule: ImageRule) -> dict[str, Any]:
    most, cap = rule.maximum(), rule.cap
    document: dict[str, Any] = {
        "maximum": {
            "trueTokens": most.true_tokens,
            "trueSize": _size(most.true_size),
            "engineTokens": most.engine_tokens,
            "profiledSize": _size(most.dummy_size),
            "profiledTokens": most.dummy_tokens,
        }
    }
    if cap is not None:
        document["cap"] = {"name": cap.name, "value": cap.value}
        if cap.tighter:
            document["cap"]["tightest"] = cap.tighter[0]
    if rule.ignored_settings:
        document["ignoredSettings"] = list(rule.ignored_settings)
    return document


def _step(step: Step) -> dict[str, Any]:
    document: dict[str, Any] = {
        "value": step.value,
        "embedTokens": dict(step.tokens),
        "keptPixelsPercent": round(step.kept * 100, 1),
        "flags": step.flags,
    }
    if step.refused:
        document["imagesRefused"] = step.refused
    return document


def _floor(floor: Floor) -> dict[str, Any]:
    wanted = {"minPixels": floor.min_pixels, "minTokens": floor.min_tokens}
    document: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
    if floor.step is not None:
        return document | {"tightened": floor.tightened} | _step(floor.step)
    return document | {"tightened": False}


def _refused(size: Size, refusal: TokenRefusal) -> dict[str, Any]:
    return {**_size(size), "refused": {"reason": refusal.reason, "message": refusal.message}}


def _size(size: Size) -> dict[str, int]:
    return {"width": size[0], "height": size[1]}
