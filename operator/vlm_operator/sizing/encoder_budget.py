"""How many tokens and items the engine lets through its encoder at once (fact sheet 4).

In: the engine's own maximum of tokens for one item of each modality that a server takes, and its batch limits. Out: the
budget, which is the size of the encoder cache too, the items of a prompt and of a profiled batch, or why the engine
refuses to start. Sources: ``v1/core/encoder_cache_manager.py:333-380``, ``multimodal/encoder_budget.py:43-215``.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderBudget:
    """The engine's encoder budget in tokens (equal to its encoder cache) and the items of one modality behind it."""

    tokens: int
    items_per_prompt: int
    items_per_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRefusal:
    """Why the engine would not start with these encoder limits: a CamelCase reason and a message."""

    reason: str
    message: str


def encoder_budget(
    *,
    max_num_batched_tokens: int,
    max_tokens_per_item: int,
    chunked: bool,
    limit: int,
    max_model_len: int,
    max_num_seqs: int,
) -> EncoderBudget | EncoderRefusal:
    """Return the budget of a server that takes images only; ``chunked`` False marks prefix-LM models."""
    budget = encoder_tokens({"image": max_tokens_per_item}, max_num_batched_tokens, chunked=chunked)
    if isinstance(budget, EncoderRefusal):
        return budget
    return encoder_items(
        budget,
        tokens_per_item=max_tokens_per_item,
        limit=limit,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
    )


def encoder_items(
    budget: int, *, tokens_per_item: int, limit: int, max_model_len: int, max_num_seqs: int
) -> EncoderBudget:
    """Return the items of one modality that a prompt and a batch may carry within ``budget`` tokens.

    A prompt is never denied its one item, nor is a batch. Without chunked prefill no more requests start together
    than ``whole_prompts`` says.
    """
    per_prompt = max(1, min(limit, max_model_len // tokens_per_item))
    per_batch = max(1, min(budget // tokens_per_item, max_num_seqs * per_prompt))
    return EncoderBudget(tokens=budget, items_per_prompt=per_prompt, items_per_batch=per_batch)


def whole_prompts(max_num_seqs: int, max_num_batched_tokens: int, tokens_per_item: int) -> int:
    """Return the requests that one step can begin where prompts are not chunked (``--no-enable-chunked-prefill``)."""
    return min(max_num_seqs, max_num_batched_tokens // tokens_per_item)


def encoder_tokens(
    max_tokens_per_item: Mapping[str, int], max_num_batched_tokens: int, *, chunked: bool
) -> int | EncoderRefusal:
    """Return the encoder budget over all active modalities, 0 without any, or the engine's refusal E6.

    ``chunked`` is False for prefix-LM models and with ``--disable-chunked-mm-input``: an item then has to pass in one
    step.
    """
    modality = profiled_modality(max_tokens_per_item)
    if modality is None:
        return 0
    largest = max_tokens_per_item[modality]
    if largest > max_num_batched_tokens and not chunked:
        message = (
            f"{'an image' if modality == 'image' else f'one {modality}'} of {largest:,} tokens must fit into one step, "
            f"which takes {max_num_batched_tokens:,}; set max_num_batched_tokens to at least {largest:,}"
        )
        return EncoderRefusal(reason="EncoderBudget", message=message)
    return max(max_num_batched_tokens, largest)


def profiled_modality(max_tokens_per_item: Mapping[str, int]) -> str | None:
    """Return the modality that the engine profiles with: that of the largest item, the last by name on a tie."""
    if not max_tokens_per_item:
        return None
    return max(max_tokens_per_item, key=lambda modality: (max_tokens_per_item[modality], modality))
