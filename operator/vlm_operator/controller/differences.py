"""Does a live object already hold what we want of it? Pure; asked by ``reconcile`` before each write.

Server-side apply of what is already there writes nothing either, but it is still a request that the audit
log shows and that a webhook sees. Only what we ask for is compared: fields that others add are theirs.
"""

from collections.abc import Sequence
from typing import Any

from vlm_operator.units import parse_quantity


def holds(wanted: Any, live: Any) -> bool:
    """Tell whether ``live`` holds everything that ``wanted`` asks for.

    An empty value equals a missing one, because the API server drops empty fields; items with a ``name`` are
    matched by it, other objects in a list by holding; quantities are equal when their values are.
    """
    if isinstance(wanted, dict):
        if not isinstance(live, dict):
            return not wanted and not live
        return all(holds(value, live.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        return _list_holds(wanted, live or ())
    if not wanted:
        return not live
    return bool(wanted == live) or _same_quantity(wanted, live)


def _list_holds(wanted: Sequence[Any], live: Any) -> bool:
    if not isinstance(live, list | tuple):
        return False
    if not all(isinstance(item, dict) for item in wanted):
        return list(wanted) == list(live)
    return all(any(_is_about(item, other) and holds(item, other) for other in live) for item in wanted)


def _is_about(item: dict[str, Any], other: Any) -> bool:
    return isinstance(other, dict) and item.get("name") == other.get("name")


def _same_quantity(wanted: Any, live: Any) -> bool:
    if not isinstance(wanted, str | int) or not isinstance(live, str | int):
        return False
    try:
        return parse_quantity(wanted) == parse_quantity(live)
    except ValueError:
        return False
