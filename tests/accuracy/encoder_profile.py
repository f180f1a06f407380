"""What the engine profiles its encoder with under the conditions of a log."""

from dataclasses import dataclass, replace

from tests.accuracy.memory_logs import LogConditions
from tests.accuracy.models import PublishedModel
from vlm_operator.sizing.encoder_budget import EncoderRefusal, encoder_items, encoder_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderProfile:
    """What the engine runs its encoder with: items of so many tokens and patches."""

    items: int = 0
    tokens: int = 0
    patches: int = 0


def context(conditions: LogConditions, model: PublishedModel) -> int:
    """Return ``max_model_len``: the model's own where the log states none."""
    return conditions.max_model_len or model.context


def profile_encoder(conditions: LogConditions, model: PublishedModel) -> EncoderProfile:
    """Return what the encoder is profiled with: as the log states it, else by the rules of the model."""
    if model.rule is None or conditions.skips_encoder or not (conditions.image_limit or conditions.video_limit):
        return EncoderProfile()
    most = model.rule.maximum()
    image = EncoderProfile(items=1, tokens=most.engine_tokens, patches=most.dummy_patches)
    if conditions.profiled is not None:
        return _stated_profile(conditions, model, image)
    largest, limit = image, conditions.image_limit
    if model.video is not None and conditions.video_limit:
        tokens = model.video.maximum(context(conditions, model)).engine_tokens
        if tokens >= image.tokens:
            largest, limit = _video_profile(model, tokens), conditions.video_limit
    batched = conditions.max_num_batched_tokens
    budget = encoder_tokens({"item": largest.tokens}, batched, chunked=True)
    if isinstance(budget, EncoderRefusal):
        raise TypeError(budget.message)
    items = encoder_items(
        budget,
        tokens_per_item=largest.tokens,
        limit=limit,
        max_model_len=context(conditions, model),
        max_num_seqs=conditions.max_num_seqs,
    )
    return replace(largest, items=items.items_per_batch)


def _stated_profile(conditions: LogConditions, model: PublishedModel, image: EncoderProfile) -> EncoderProfile:
    """Return the profile that the log states; a single item above a step's tokens is as large as the budget."""
    stated = conditions.profiled
    assert stated is not None
    each = stated.budget_tokens // stated.items
    if stated.modality == "video" and model.video is not None:
        if conditions.release.caps_video:
            each = min(each, max(context(conditions, model) - image.tokens, 1))
        return replace(_video_profile(model, each), items=stated.items)
    if image.tokens > each:
        image = replace(image, tokens=each, patches=image.patches * each // image.tokens)
    return replace(image, items=stated.items)


def _video_profile(model: PublishedModel, tokens: int) -> EncoderProfile:
    assert model.video is not None
    return EncoderProfile(items=1, tokens=tokens, patches=tokens * model.video.shape.merge_size**2)


def takes_videos(conditions: LogConditions, model: PublishedModel) -> bool:
    """Return whether the server would take a video of this model."""
    return model.video is not None and conditions.video_limit > 0
