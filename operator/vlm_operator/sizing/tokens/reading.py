"""Reads configuration and settings; what cannot be used raises ``Refused``, which ``bind_rule`` catches."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.sizing.tokens.types import ServerSettings, TokenRefusal

_LARGEST: Final = 2**40
"""No figure of an image comes near; larger numbers are mistakes and would only cost time."""

_PIXEL_VALUES: Final = frozenset(
    {"do_convert_rgb", "do_normalize", "do_rescale", "image_mean", "image_std", "resample", "rescale_factor"}
)
"""Settings that say what pixels are worth and never how many there are (``ImagesKwargs`` of ``transformers``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One model as its files and the server's flags describe it; ``config`` has ``--hf-overrides`` laid on it."""

    model_id: str
    config: Mapping[str, Any]
    processor: Mapping[str, Any]
    settings: ServerSettings


class Refused(Exception):  # noqa: N818 - an outcome inside this package, not an error of the product
    """Carries a refusal from the place that finds it to ``bind_rule``."""

    def __init__(self, reason: str, message: str) -> None:
        self.refusal = TokenRefusal(reason=reason, message=message)
        super().__init__(message)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` laid on it, mappings inside likewise, as ``--hf-overrides`` does."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def find(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at the dotted ``path``, None where a step is missing."""
    value: Any = document
    for step in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def first_int(model_id: str, *places: tuple[Mapping[str, Any], str], default: int | None = None) -> int:
    """Return the first whole number at ``places`` (document, dotted path), else ``default``.

    Raises:
        Refused: No place has a value and there is no default, or the value is not a whole number above 0.
    """
    for document, path in places:
        value = find(document, path)
        if value is not None:
            return positive_int(path, value)
    if default is not None:
        return default
    wanted = " or ".join(dict.fromkeys(path for _, path in places))
    raise Refused(
        "MissingProcessorValue",
        f"{model_id or 'the model'}: its configuration lacks {wanted}, without which images cannot be "
        f"counted; "
        "take config.json and preprocessor_config.json from the checkpoint",
    )


def positive_int(name: str, value: Any) -> int:
    """Return ``value`` as a whole number.

    Raises:
        Refused: It is not a whole number above 0, or it is absurdly large.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
        raise Refused(
            "InvalidSetting",
            f"{name} is {value!r}, but must be a whole number from 1 to {_LARGEST:,}; correct or drop it",
        )
    return value


def positive_number(name: str, value: Any) -> float:
    """Return ``value`` as a number above 0.

    Raises:
        Refused: It is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LARGEST:
        raise Refused("InvalidSetting", f"{name} is {value!r}, but must be a number above 0; correct or drop it")
    return float(value)


def same_in_both(source: Source, in_processor: str, in_config: str) -> int:
    """Return a figure that both the pixels (processor) and the count (configuration) use.

    Raises:
        Refused: The two differ.
    """
    value = first_int(source.model_id, (source.processor, in_processor), (source.config, in_config))
    other = first_int(source.model_id, (source.config, in_config), default=value)
    if other != value:
        raise Refused(
            "SettingMismatch",
            f"{in_config} is {other}, but the processor's {in_processor} is {value}: pixels and token count would "
            "disagree and requests would fail; drop the override",
        )
    return value


def divide(name: str, side: int, patch_size: int) -> int:
    """Return how many patches a side of ``side`` pixels holds.

    Raises:
        Refused: Not even one.
    """
    if patch_size > side:
        raise Refused(
            "InvalidSetting", f"{name} is {patch_size}, but an image or tile is only {side} pixels wide; correct it"
        )
    return side // patch_size


def boolean(name: str, value: Any) -> bool:
    """Return ``value`` as a truth value; None is false, as the engine reads it.

    Raises:
        Refused: It is neither true, false nor null.
    """
    if value is not None and not isinstance(value, bool):
        raise Refused("InvalidSetting", f"{name} is {value!r}, but must be true or false; correct or drop it")
    return bool(value)


def flatten_images_kwargs(settings: ServerSettings) -> dict[str, Any]:
    """Return the processor settings with the scoped form ``images_kwargs`` laid over the flat one.

    Raises:
        Refused: ``images_kwargs`` is not an object.
    """
    flat = {key: value for key, value in settings.mm_processor_kwargs.items() if key != "images_kwargs"}
    scoped = settings.mm_processor_kwargs.get("images_kwargs", {})
    if not isinstance(scoped, Mapping):
        raise Refused(
            "InvalidSetting",
            f"mm_processor_kwargs.images_kwargs is {scoped!r}, but must be an object of settings",
        )
    return merge(flat, scoped)


def refuse_unknown(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse settings that the engine would silently ignore, misspelt ones among them.

    Raises:
        Refused: ``given`` has a key that is not in ``known``.
    """
    for key, value in given.items():
        if key not in known:
            _refuse_pixel_values(key, value)
            raise Refused(
                "UnknownSetting",
                f"mm_processor_kwargs.{key} = {value!r} has no counted effect: the engine does not report names it "
                f"does not know; this family counts with {', '.join(sorted(known)) or 'none'}; correct or drop it",
            )


def refuse_changed(given: Mapping[str, Any], shipped: Mapping[str, Any], hint: str) -> None:
    """Refuse settings that would change the pixels but not the token count.

    Raises:
        Refused: ``given`` differs from ``shipped``.
    """
    for key, value in given.items():
        if key not in shipped or shipped[key] != value:
            _refuse_pixel_values(key, value)
            raise Refused(
                "SettingMismatch",
                f"mm_processor_kwargs.{key} = {value!r} differs from the checkpoint's {shipped.get(key)!r}: the "
                f"engine would apply it to the pixels but not to the token count, and requests would fail; {hint}",
            )


def _refuse_pixel_values(key: str, value: Any) -> None:
    """Refuse a setting of ``_PIXEL_VALUES``: not every processor takes each at every value, and none is checked."""
    if key in _PIXEL_VALUES:
        raise Refused(
            "UncheckedSetting",
            f"mm_processor_kwargs.{key} = {value!r} says what pixels are worth, and no token count depends on it; "
            "whether the server starts with it is not checked: leave it out to count, and try it on a server",
        )


def dotted(given: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings in ``given``."""
    for key, value in given.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
