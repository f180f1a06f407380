"""One bound rule for each way in which the registry counts images, of the catalogue where it has a model for it."""

from collections.abc import Mapping
from typing import Any

from tests.property.families_without_rows import FAMILIES
from vlm_operator.catalogue import load
from vlm_operator.sizing.tokens import BUILDERS, ImageRule, bind_rule

Key = tuple[Any, ...]


def example_rules() -> Mapping[Key, tuple[str, ImageRule]]:
    """Return the architecture and the rule of the first model that each builder binds."""
    cards = [load.find_model(model_id) for model_id in load.model_ids()]
    examples = [(card.architecture, card.config, card.processor) for card in cards] + list(FAMILIES.values())
    found: dict[Key, tuple[str, ImageRule]] = {}
    for architecture, config, processor in examples:
        builder = BUILDERS.get(architecture)
        rule = bind_rule(architecture, config, processor)
        if builder is not None and isinstance(rule, ImageRule):
            found.setdefault(builder.key, (architecture, rule))
    return found
