"""The answer of ``vlmctl tokens`` for people: the count first, then how it comes about, then what could be changed."""

from collections.abc import Mapping

from vlm_operator.cli.image_sizes import Size
from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.text import MARGIN, bar, fold, table
from vlm_operator.cli.token_answer import Answer, Floor, no_cap_message
from vlm_operator.cli.token_mix import Step, engine_flags, figures, histogram
from vlm_operator.report.figures import count, percent
from vlm_operator.sizing.tokens.rule_of_thumb import TILE_SIZE, estimate_tiles
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, TokenRefusal

_LABEL = 11
_BAR = 30
_MOST_NAMED = 10


def screen_of(answer: Answer, style: Style) -> list[str]:
    """Return the lines of an answer."""
    lines: list[str] = []
    if answer.each:
        for size in answer.each:
            lines += _image(answer, size, style)
    else:
        lines += _summary(answer, style)
    if answer.rule.ignored_settings:
        ignored = ", ".join(answer.rule.ignored_settings)
        lines += _labelled("ignored", f"the engine ignores {ignored} for this model; the counts are without")
    for note in answer.notes:
        lines += _labelled("note", note)
    if answer.explain:
        lines += _explain_rule(answer.rule)
    lines += _left_out(answer, style)
    if answer.no_cap:
        return [*lines, "", *fold(f"✘ {no_cap_message(answer.model)}", COLUMNS)]
    if answer.trade:
        lines += ["", *_trade(answer)]
    if answer.floor is not None:
        lines += ["", *_floor(answer, answer.floor)]
    return lines


def refused_screen(refusal: TokenRefusal, style: Style) -> list[str]:
    """Return the lines of a refusal: of an image, which its message names, or of the settings as a whole."""
    first, *rest = fold(f"{refusal.message} ({refusal.reason})", COLUMNS - 2)
    return [f"{style.paint('bad', '✘')} {first}", *(f"  {row}" for row in rest)]


def _image(answer: Answer, size: Size, style: Style) -> list[str]:
    item = answer.rule.count_image(*size)
    if isinstance(item, TokenRefusal):
        return refused_screen(item, style)
    tokens = style.paint("strong", f"{item.embed_tokens:,} image tokens")
    lines = [f"{size[0]}×{size[1]} → {tokens} ({item.prompt_tokens:,} in the prompt)"]
    return [*lines, *_explain(answer.rule, size, item)] if answer.explain else lines


def _explain(rule: ImageRule, size: Size, item: ImageTokens) -> list[str]:
    rows: list[str] = []
    if item.resized is not None:
        rows += _labelled("resize", _resize(size, item.resized))
    if item.tiles is not None:
        rows += _labelled("views", _views(item))
    if item.grid is not None:
        rows += _labelled("grid", f"{item.grid[0]:,} × {item.grid[1]:,} (columns × rows)")
    rows += _labelled("patches", f"{item.vit_patches:,} through the vision tower")
    return [*rows, *_parts(rule, item), *_rule_of_thumb(size, item)]


def _resize(size: Size, resized: Size) -> str:
    if resized == size:
        return f"{size[0]}×{size[1]} stays"
    share = resized[0] * resized[1] / (size[0] * size[1])
    return f"→ {resized[0]}×{resized[1]}, {share * 100:,.1f} % of its pixels"


def _views(item: ImageTokens) -> str:
    views = item.tiles or 0
    columns, rows = item.grid or (views, 1)
    return f"{views:,} through the vision tower{', one of the whole image included' if views > columns * rows else ''}"


def _rule_of_thumb(size: Size, item: ImageTokens) -> list[str]:
    """Return what the tile formula of planning sheets says, for those who have planned with it."""
    estimate = estimate_tiles(*size)
    times = estimate.tokens / item.embed_tokens
    said = f"{count(estimate.tiles, 'tile')} of {TILE_SIZE} pixels, {estimate.tokens:,} tokens"
    return fold(f"{MARGIN}tile rule of thumb: {said}, {times:,.1f} times the truth", COLUMNS)


def _parts(rule: ImageRule, item: ImageTokens) -> list[str]:
    """Return the terms of the sum, one a row, and what they add up to."""
    parts = [part for part in rule.parts(item) if part.count * part.tokens]
    cells = [
        (part.label, f"{part.count:,} × {part.tokens:,}", f"{part.count * part.tokens:,}")
        for part in parts
        if part.embedded
    ]
    cells.append(("image tokens", "=", f"{item.embed_tokens:,}"))
    text = [part for part in parts if not part.embedded]
    cells += [
        (f"{part.label} (text)", f"{part.count:,} × {part.tokens:,}", f"{part.count * part.tokens:,}") for part in text
    ]
    cells.append(("in the prompt", "=", f"{item.prompt_tokens:,}"))
    lines = table(cells, right=(1, 2))
    return [f"{MARGIN}{'' if at else 'tokens':<{_LABEL}}{line}" for at, line in enumerate(lines)]


def _summary(answer: Answer, style: Style) -> list[str]:
    mix = answer.mix
    lines = [style.paint("strong", f"{count(mix.images, 'image')} in {answer.source} · {answer.model}")]
    if mix.counted:
        embed = mix.embed_tokens()
        rows = [("tokens", *figures(embed))]
        for label, distribution in (("of the image", embed), ("in the prompt", mix.prompt_tokens())):
            rows.append((label, *(f"{value:,}" for value in figures(distribution).values())))
        lines += ["", *(f"{MARGIN}{line}" for line in table(rows, right=range(1, 5)))]
        lines += ["", *_histogram(embed, mix.images)]
        if answer.explain:
            size, item, _ = max(mix.counted, key=lambda entry: entry[1].embed_tokens)
            lines += ["", f"the largest: {size[0]}×{size[1]}", *_explain(answer.rule, size, item)]
    return lines


def _histogram(distribution: dict[int, int], images: int) -> list[str]:
    bins = histogram(distribution)
    most = max(each.images for each in bins)
    rows = [("image tokens", "images", "", "")]
    for each in bins:
        span = f"{each.low:,}" if each.low == each.high else f"{each.low:,} to {each.high:,}"
        rows.append((span, f"{each.images:,}", percent(each.images / images), bar(each.images / most, _BAR)))
    return [f"{MARGIN}{line}" for line in table(rows, right=(0, 1, 2))]


def _left_out(answer: Answer, style: Style) -> list[str]:
    """Name the images that are refused and the files that gave no size; single images are answered by themselves."""
    lines: list[str] = []
    refused = [] if answer.each else answer.mix.refused
    if refused:
        images = sum(number for _, _, number in refused)
        lines += ["", f"{count(images, 'image')} refused:"]
        for _, refusal, _ in refused[:_MOST_NAMED]:
            lines += refused_screen(refusal, style)
        lines += _and_more(len(refused), "size", "sizes")
    unreadable = answer.sizes.unreadable
    if unreadable:
        lines += ["", f"{count(len(unreadable), 'entry', 'entries')} without a size:"]
        for text in unreadable[:_MOST_NAMED]:
            lines += [f"{style.paint('bad', '✘')} {row}" for row in fold(text, COLUMNS - 2)[:1]]
        lines += _and_more(len(unreadable), "entry", "entries")
    if answer.sizes.skipped:
        lines += ["", f"{count(answer.sizes.skipped, 'other file')} passed over: no image by name"]
    return lines


def _and_more(number: int, one: str, many: str) -> list[str]:
    left = number - _MOST_NAMED
    return [f"  and {count(left, one, many)} more; all of them: --output json"] if left > 0 else []


def _explain_rule(rule: ImageRule) -> list[str]:
    most = rule.maximum()
    lines = _labelled(
        "max here",
        f"{most.true_tokens:,} image tokens, such as {most.true_size[0]}×{most.true_size[1]}; "
        f"what the engine reserves for: {most.engine_tokens:,}",
    )
    width, height = most.dummy_size
    lines += _labelled("profiled", f"{width}×{height}, which takes {most.dummy_tokens:,} tokens")
    cap = rule.cap
    if cap is None:
        return lines + _labelled("cap", "none that works for this family; scale images down before sending them")
    if not cap.tighter:
        return lines + _labelled("cap", f"{cap.name} is {_value(cap.value)}, and no lower value takes tokens off")
    lines += _labelled("cap", f"{cap.name} is {_value(cap.value)} and works down to {_value(cap.tighter[0])}")
    example = max((value for value in cap.tighter if value <= cap.value // 2), default=cap.tighter[0])
    # Flags are never folded, so that they can be pasted.
    return [*lines, f"{MARGIN}{'':<{_LABEL}}at {_value(example)}: {engine_flags(rule.with_cap(example).settings)}"]


def _trade(answer: Answer) -> list[str]:
    """Return a row for each cap; the flags stand in the row where the screen is wide enough, else below."""
    cap = answer.rule.cap
    rows = [(cap.name if cap is not None else "cap", "p50", "p99", "max", "pixels kept")]
    rows += [_step_cells(step) for step in answer.trade]
    flags = ["flags of the engine", *(step.flags or "none needed" for step in answer.trade)]
    lines = [f"{MARGIN}{line}" for line in table(rows, right=range(5), gap=2)]
    wide = [f"{line}  {flag}" for line, flag in zip(lines, flags, strict=True)]
    if max(map(len, wide)) <= COLUMNS:
        lines = wide
    else:
        lines += ["", *(f"{MARGIN}{row[0]}: {flag}" for row, flag in zip(rows[1:], flags[1:], strict=True))]
    refusing = [f"{_value(step.value)} refuses {count(step.refused, 'image')}" for step in answer.trade if step.refused]
    return lines + [f"{MARGIN}{line}" for line in refusing]


def _step_cells(step: Step) -> tuple[str, str, str, str, str]:
    p50, p99, most = (f"{step.tokens[key]:,}" if key in step.tokens else "-" for key in ("p50", "p99", "max"))
    return _value(step.value), p50, p99, most, f"{step.kept * 100:.1f} %"


def _floor(answer: Answer, floor: Floor) -> list[str]:
    wanted = []
    if floor.min_pixels is not None:
        wanted.append(f"{floor.min_pixels:,} pixels")
    if floor.min_tokens is not None:
        wanted.append(f"{floor.min_tokens:,} tokens")
    floor_text = f"at least {' and '.join(wanted)} of each image, or all that it has"
    cap, step = answer.rule.cap, floor.step
    if cap is None or step is None:
        return fold("✘ no image was counted, so there is nothing that a cap could be set for", COLUMNS)
    if not floor.tightened:
        return fold(f"no {cap.name} below {_value(cap.value)} keeps {floor_text}; leave it as it is", COLUMNS)
    lines = fold(
        f"the smallest {cap.name} that keeps {floor_text}: {_value(step.value)} (now {_value(cap.value)})", COLUMNS
    )
    before, after = figures(answer.mix.embed_tokens()), step.tokens
    rows = [("image tokens", *before), ("now", *_comma(before)), ("then", *_comma(after))]
    lines += [f"{MARGIN}{line}" for line in table(rows, right=range(1, 5))]
    lines += [f"{MARGIN}pixels kept  {step.kept * 100:.1f} %", f"{MARGIN}flags        {step.flags}"]
    return lines


def _comma(values: Mapping[str, int]) -> list[str]:
    return [f"{value:,}" for value in values.values()]


def _value(value: int) -> str:
    """Return the value of a cap; some families have a switch."""
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"


def _labelled(label: str, text: str) -> list[str]:
    body = COLUMNS - len(MARGIN) - _LABEL
    rows = fold(text, body)
    return [f"{MARGIN}{'' if at else label:<{_LABEL}}{row}" for at, row in enumerate(rows)]
