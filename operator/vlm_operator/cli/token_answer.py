"""What ``vlmctl tokens`` found, before it becomes a screen or a document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cli.image_sizes import ImageSizes, Size
from vlm_operator.cli.token_mix import Step, TokenMix, measure_cap
from vlm_operator.sizing.tokens.caps import tightest_cap
from vlm_operator.sizing.tokens.reading import dotted, find
from vlm_operator.sizing.tokens.registry import bind_rule
from vlm_operator.sizing.tokens.types import ImageRule
from vlm_operator.sizing.tokens.uncounted import refuse_dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What has to be kept of each image; ``step`` is the tightest cap that does, None where no cap works.

    ``tightened`` is false where no tighter cap keeps enough, so that the present settings stay.
    """

    min_pixels: int | None
    min_tokens: int | None
    step: Step | None
    tightened: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The images and their tokens.

    Attributes:
        model: Id of the model.
        rule: The model's counting rule under the settings asked for.
        each: Sizes to be answered one by one; empty where the answer is about all of them together.
        source: Where the sizes come from, in words.
        explain: Whether to say how the counts come about.
        over_cap: Whether to say what each cap means.
        trade: What each cap means; empty unless asked for, or where there is no cap.
        floor: The cap for a floor; None unless asked for.
        notes: What to know of the model and the settings: that it is not served, that values are remembered.
    """

    model: str
    rule: ImageRule
    notes: Sequence[str]
    sizes: ImageSizes
    mix: TokenMix
    each: Sequence[Size]
    source: str
    explain: bool
    over_cap: bool
    trade: Sequence[Step]
    floor: Floor | None

    @property
    def no_cap(self) -> bool:
        """Whether a cap is asked for and there is none."""
        return self.rule.cap is None and (self.over_cap or self.floor is not None)

    @property
    def complete(self) -> bool:
        """Whether every image was read and accepted, and there is a cap where one is asked for."""
        return not (self.sizes.unreadable or self.mix.refused or self.no_cap)


def notes_of(card: ModelCard, rule: ImageRule) -> list[str]:
    """Return what to know of a model, or of the settings asked for, beside the counts."""
    notes = [
        f"hf_overrides.{name} is not in config.json of {card.id} and changes no count: check its spelling"
        for name in _unread_overrides(card, rule)
    ]
    dropped = refuse_dropped(card.architecture, card.id)
    if dropped is not None:
        notes.append(dropped.message)
    if card.remembered_fields or card.processor_provenance.certainty == "memory":
        what = ", ".join(card.remembered_fields) or "processor"
        notes.append(
            f"values of {card.id} are remembered, not read from its files: {what}; to count with the files: "
            "--source hub, or --model-dir DIR"
        )
    return notes


def _unread_overrides(card: ModelCard, rule: ImageRule) -> list[str]:
    """Return overrides that config.json lacks and the rule does without, dotted; the engine takes any name."""
    given, unread = rule.settings.hf_overrides, []
    for name in dotted(given):
        if find(card.config, name) is None:
            settings = replace(rule.settings, hf_overrides=_without(given, name.split(".")))
            other = bind_rule(card.architecture, card.config, card.processor, settings, card.id)
            if isinstance(other, ImageRule) and replace(other, settings=rule.settings) == rule:
                unread.append(name)
    return unread


def _without(document: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return ``document`` without the value at ``path``, where it has one."""
    kept = {key: value for key, value in document.items() if key != path[0]}
    inner = document.get(path[0])
    return {**kept, path[0]: _without(inner, path[1:])} if isinstance(inner, Mapping) and len(path) > 1 else kept


def find_floor(rule: ImageRule, mix: TokenMix, *, min_pixels: int | None, min_tokens: int | None) -> Floor:
    """Return the tightest cap that keeps so many pixels and tokens of each image of ``mix``."""
    sizes = [size for size, _, _ in mix.counted]
    capped = tightest_cap(rule, sizes, min_pixels=min_pixels, min_tokens=min_tokens)
    step = measure_cap(rule, capped, mix) if capped is not None and mix.counted else None
    return Floor(min_pixels=min_pixels, min_tokens=min_tokens, step=step, tightened=capped is not rule)


def no_cap_message(model: str) -> str:
    """Return why no cap is offered and what helps instead."""
    return (
        f"{model}: no setting caps the images of this family in pixels and count alike, so there is none to offer; "
        "scale images down before sending them"
    )
