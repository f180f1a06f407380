"""Sparse configuration files completed: what a checkpoint leaves out has the value of its configuration class.

``transformers`` writes only what differs from the class, so that LLaVA-1.5's ``text_config`` names no layer. The
values are those of ``catalogue/class_defaults.yaml``. Called by ``card``.
"""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.catalogue.load import class_defaults
from vlm_operator.catalogue.types import WholeDefaults

_SECTIONS: Final = ("text_config", "vision_config")


def complete_config(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return ``config`` with the class defaults of its sections filled in, and the classes that gave any.

    What the file says stays as it is, ``null`` included. A file of an unknown class is returned as it is; a missing
    ``text_config`` is not made up, because older files keep those values at the top.
    """
    defaults = class_defaults()
    whole = defaults.whole.get(str(config.get("model_type") or ""), WholeDefaults(source="", values={}, sections={}))
    completed = {**whole.values, **config}
    used = [whole.source] if len(completed) > len(config) else []
    for key in _SECTIONS:
        section = config.get(key)
        fallback = whole.sections.get(key)
        if not isinstance(section, Mapping):
            if section is None and key == "vision_config" and fallback is not None and not fallback.optional:
                section = fallback.when_absent
            else:
                continue
        model_type = str(section.get("model_type") or (fallback.model_type if fallback else ""))
        part = defaults.parts.get(fallback.model_type if fallback and fallback.fixed else model_type)
        values = part.values if part else {}
        completed[key] = {**values, **section, **({"model_type": model_type} if model_type else {})}
        if part and set(values) - set(section):
            used.append(part.source)
    return completed, tuple(used)
