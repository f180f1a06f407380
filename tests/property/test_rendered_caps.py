"""A cap as it is rendered: read back from the server's command line it counts the same, and it does something."""

from functools import cache
from typing import Any

import pytest

from tests.property.families_without_rows import FAMILIES
from tests.support.builders import make_flags, make_plan, make_resource
from vlm_operator.catalogue.load import find_engine, find_model, model_ids
from vlm_operator.engine.command_line import CommandLineRefusal, parse_command_line
from vlm_operator.render.engine_args import render_engine_args
from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

SIZES = [(4032, 3024), (1280, 720), (640, 480), (100, 100), (2000, 150)]
Files = tuple[str, dict[str, Any], dict[str, Any]]


@cache
def files() -> dict[str, Files]:
    """Return architecture, configuration and processor values of every model of the catalogue and every family."""
    cards = {card.id: (card.architecture, card.config, card.processor) for card in map(find_model, model_ids())}
    return {**cards, **FAMILIES}


def bind(name: str, settings: ServerSettings | None = None) -> ImageRule:
    rule = bind_rule(*files()[name], settings or ServerSettings(), name)
    assert not isinstance(rule, TokenRefusal), rule.message
    return rule


def read_back(rule: ImageRule) -> ServerSettings:
    """Return the settings that the engine's parser finds on the command line that is rendered for ``rule``."""
    flags = make_flags(mm_processor_kwargs=rule.settings.mm_processor_kwargs, hf_overrides=rule.settings.hf_overrides)
    values = parse_command_line(render_engine_args(make_resource().spec, make_plan(flags=flags)), find_engine("0.33.0"))
    assert not isinstance(values, CommandLineRefusal), values.message
    return ServerSettings(
        mm_processor_kwargs=values.get("mm_processor_kwargs", {}), hf_overrides=values.get("hf_overrides", {})
    )


@pytest.mark.parametrize("name", files())
def test_the_rendered_flags_of_a_cap_bring_its_counts(name: str) -> None:
    rule = bind(name)
    cap = rule.cap
    if cap is None:
        return
    assert list(cap.tighter) == sorted(set(cap.tighter)), "ascending"
    for at in {0, len(cap.tighter) // 2, len(cap.tighter) - 1}:
        capped = rule.with_cap(cap.tighter[at])
        again = bind(name, read_back(capped))
        assert again.cap is not None
        assert (again.cap.name, again.cap.value) == (cap.name, cap.tighter[at])
        assert again.ignored_settings == ()
        sizes = [*SIZES, rule.maximum().true_size, capped.maximum().true_size]
        assert again.count_images(sizes) == capped.count_images(sizes)
        assert again.maximum() == capped.maximum()


@pytest.mark.parametrize("name", files())
def test_a_cap_that_is_offered_takes_tokens_off_some_image(name: str) -> None:
    rule = bind(name)
    cap = rule.cap
    if cap is None:
        return
    assert cap.tighter, "a shipped cap is offered to be lowered"
    sizes = [*SIZES, rule.maximum().true_size, rule.maximum().dummy_size]
    whole = rule.count_images(sizes)
    # The step next to the shipped value may change no image of these few.
    for at in {0, len(cap.tighter) // 2}:
        pairs = zip(whole, rule.with_cap(cap.tighter[at]).count_images(sizes), strict=True)
        counts = [
            (before.embed_tokens, after.embed_tokens)
            for before, after in pairs
            if isinstance(before, ImageTokens) and isinstance(after, ImageTokens)
        ]
        assert any(after < before for before, after in counts), (cap.name, cap.tighter[at], counts)


def test_most_models_have_a_cap() -> None:
    capped = [name for name in model_ids() if bind(name).cap is not None]
    assert len(capped) > len(model_ids()) // 2
