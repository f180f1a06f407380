"""The answer of ``vlmctl memory`` for people: does it start, where the memory goes, what else would start."""

import shlex
from collections.abc import Sequence

from vlm_operator.cli.memory_answer import Asked, serve_flags, spare_bytes, worst_end
from vlm_operator.cli.memory_changes import Change, find_changes
from vlm_operator.cli.output import COLUMNS, Style, clean
from vlm_operator.cli.text import LABEL_WIDTH, MARGIN, fold, section, table
from vlm_operator.cli.waterfall import waterfall
from vlm_operator.planning import ENGINE_VERSION
from vlm_operator.report.figures import count
from vlm_operator.sizing.kv_cache import KVCachePlan
from vlm_operator.sizing.launch import Launched, LaunchRefusal
from vlm_operator.units import GIB, format_gib


def memory_screen(asked: Asked, launched: Launched | LaunchRefusal, style: Style) -> list[str]:
    """Return the lines of the screen."""
    size = asked.flags.tensor_parallel_size
    title = clean(f"{asked.card.id} on {size} × {asked.gpu.display_name} · vLLM {ENGINE_VERSION}")
    lines = [*(style.paint("strong", row) for row in fold(title, COLUMNS)), ""]
    if isinstance(launched, LaunchRefusal):
        lines += _bad(f"refused: {launched.message} ({launched.reason})", style)
        changes = find_changes(asked, launched)
        return [*lines, *_offer(changes), *_next(asked, changes)]
    misfit = launched.begun.misfit
    if misfit is None:
        return lines + _good(launched, style) + _figures(asked, launched)
    lines += _bad(f"does not start: {misfit.message}", style)
    changes = find_changes(asked, launched)
    return [*lines, *_offer(changes), *_figures(asked, launched), *_next(asked, changes)]


def _figures(asked: Asked, launched: Launched) -> list[str]:
    """Return where the memory goes, and what it gives."""
    seen = f"{asked.gpu.engine_memory_bytes / GIB:.1f} GiB seen by the engine ({asked.gpu.engine_memory_certainty}), "
    seen += f"{asked.gpu.driver_memory_bytes / GIB:.1f} by the driver"
    lines = ["", f"{MARGIN}{'Memory per GPU':<{LABEL_WIDTH}}{seen}"]
    lines += waterfall(launched.begun.memory, worst_end(launched))
    blocks = (
        ("KV cache", _cache(launched)),
        ("Encoder", [_encoder(launched)]),
        ("Beside the GPU", [_host(launched)]),
        ("Flags", [serve_flags(launched, asked)]),
        ("ignored", _ignored(asked)),
        ("How sure", [_how_sure(asked)]),
    )
    for label, block in blocks:
        if block:
            lines += ["", *section(label, block)]
    return lines


def _good(launched: Launched, style: Style) -> list[str]:
    cache = launched.begun.cache
    requests = f"{cache.concurrency:.1f} requests of {launched.request.max_model_len:,} tokens at once"
    line = f"starts    {cache.tokens:,} tokens of KV cache    {requests}    "
    return [f"{style.paint('good', '✔')} {line}{format_gib(spare_bytes(launched))} to spare"]


def _bad(text: str, style: Style) -> list[str]:
    first, *rest = fold(text, COLUMNS - 2)
    return [f"{style.paint('bad', '✘')} {first}", *(f"  {row}" for row in rest)]


def _offer(changes: Sequence[Change]) -> list[str]:
    """Return a table of the changes; the option that makes one stands below it where the line is too short."""
    if not changes:
        return []
    rows = [[change.words, f"{change.kv_cache_tokens:,} tokens", format_gib(change.spare_bytes)] for change in changes]
    heads = table([["what would start", "KV cache", "to spare"], *rows], right=(1, 2))
    lines = ["", f"{MARGIN}{heads[0]}"]
    for head, change in zip(heads[1:], changes, strict=True):
        option = shlex.join([word for pair in change.options.items() for word in pair])
        one_line = f"{MARGIN}{head}   {option}"
        lines += [one_line] if len(one_line) <= COLUMNS else [f"{MARGIN}{head}", f"{MARGIN}    {option}"]
    return lines


def _next(asked: Asked, changes: Sequence[Change]) -> list[str]:
    """Return the first of the changes as a command to paste."""
    if not changes:
        return []
    words = [word for pair in {**asked.options, **changes[0].options}.items() for word in pair]
    return ["", clean(f"Next: vlmctl memory {shlex.join(words)}")]


def _cache(launched: Launched) -> list[str]:
    begun = launched.begun
    likely, worst = begun.likely_cache, begun.cache
    ends = (
        ("likely", begun.likely.kv_available_bytes, likely),
        ("at worst", begun.pessimistic.kv_available_bytes, worst),
    )
    rows = [[name, format_gib(max(0, size)), *_capacity(cache)] for name, size, cache in ends]
    request = f"one request of {launched.request.max_model_len:,} tokens needs {format_gib(worst.min_available_bytes)}"
    return [*table(rows, right=(1, 2)), f"{request}, in blocks of {worst.block_size} tokens"]


def _capacity(cache: KVCachePlan) -> list[str]:
    return [f"{cache.tokens:,} tokens", f"{cache.concurrency:.2f} × the longest request"]


def _encoder(launched: Launched) -> str:
    items = count(launched.budget.items_per_batch, launched.modality)
    tokens = launched.request.engine_tokens
    return f"profiled with {items} of {tokens:,} tokens; budget and cache {launched.budget.tokens:,} tokens"


def _host(launched: Launched) -> str:
    host = launched.begun.host
    shared = format_gib(host.shared_memory_bytes)
    return (
        f"{count(host.cpu_cores, 'CPU core')} · {format_gib(host.memory_bytes)} of host memory · {shared} in /dev/shm"
    )


def _ignored(asked: Asked) -> list[str]:
    ignored = ", ".join(asked.model.rule.ignored_settings)
    return [f"the engine ignores {ignored} for this model"] if ignored else []


def _how_sure(asked: Asked) -> str:
    known = f"the checkpoint's configuration ({asked.card.config_provenance.certainty})"
    return (
        f"weights and KV cache from {known} by the engine's rules · GPU memory {asked.gpu.engine_memory_certainty} · "
        "the rest from constants with their spread: it starts where the bad end of all of them together starts"
    )
