"""Changes of a declared spec, as the command line names them: ``max-pixels=1003520,gpu=l40s,tp=2``.

Read with the arguments, applied by ``what_if`` and ``sweep``.
"""

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vlm_operator.cli.arguments import positive
from vlm_operator.errors import InputError, Problem

if TYPE_CHECKING:  # reading arguments loads no model of the resource
    from vlm_operator.api.spec import VLMDeploymentSpec

KEYS = ("max-pixels", "gpu", "tp")
WHAT_IF_HELP = """\
plan with changes as well and show them side by side, such as max-pixels=501760
or max-pixels=501760,gpu=l40s,tp=2; may be given several times
  max-pixels  what an image may be scaled down to (quality.minPixelsPerImage)
  gpu         the only GPU to use: a product label or a catalogue id
  tp          the only tensor parallel size to use"""

OVER_HELP = """\
what to go over: max-pixels, gpu, tp, each with the values to take or without
(all that there are): max-pixels=250880,501760,gpu; default: max-pixels,gpu"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What differs from the declared spec; None is as declared."""

    max_pixels: int | None = None
    gpu: str | None = None
    tensor_parallel_size: int | None = None

    def __str__(self) -> str:
        """Return the change as it is written: ``max-pixels=501760,gpu=l40s``."""
        return ",".join(f"{key}={value}" for key, value in self.as_document().items())

    def as_document(self) -> dict[str, int | str]:
        """Return what is changed, by key."""
        values = zip(KEYS, (self.max_pixels, self.gpu, self.tensor_parallel_size), strict=True)
        return {key: value for key, value in values if value is not None}

    def apply(self, spec: "VLMDeploymentSpec") -> "VLMDeploymentSpec":
        """Return the spec with the change; the tensor parallel size is no field of it."""
        quality, accelerators = spec.quality, spec.accelerators
        if self.max_pixels is not None:
            quality = quality.model_copy(update={"min_pixels_per_image": self.max_pixels})
        if self.gpu is not None:
            accelerators = accelerators.model_copy(update={"allowed": (self.gpu,), "denied": ()})
        return spec.model_copy(update={"quality": quality, "accelerators": accelerators})


def parse_change(text: str) -> Change:
    """Return the change that ``text`` names.

    Raises:
        argparse.ArgumentTypeError: ``text`` is not ``KEY=VALUE`` pairs of known keys, each once.
    """
    found: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = (word.strip() for word in pair.partition("="))
        if not equals or not value or key not in KEYS or key in found:
            raise argparse.ArgumentTypeError(
                f"{text!r}: {pair.strip()!r} is no change; write each of {', '.join(KEYS)} at most once, "
                "such as max-pixels=501760,gpu=l40s"
            )
        found[key] = value
    return Change(
        max_pixels=positive(found["max-pixels"]) if "max-pixels" in found else None,
        gpu=found.get("gpu"),
        tensor_parallel_size=positive(found["tp"]) if "tp" in found else None,
    )


def wanted_changes(arguments: argparse.Namespace) -> list[Change]:
    """Return one change for each ``--what-if``, with ``--gpu`` and ``--tp`` joined to it; these alone make one.

    Raises:
        InputError: ``--gpu`` or ``--tp`` contradicts a ``--what-if``.
    """
    changes: list[Change] = list(arguments.what_if)
    extra: dict[str, Any] = {"gpu": arguments.gpu, "tensor_parallel_size": arguments.tp}
    extra = {name: value for name, value in extra.items() if value is not None}
    if not extra:
        return changes
    for change in changes:
        for name in extra:
            if getattr(change, name) is not None:
                option = "--gpu" if name == "gpu" else "--tp"
                message = f"--what-if {change} and {option} both name it; leave one of them out"
                raise InputError([Problem(path="", message=message)])
    return [replace(change, **extra) for change in changes or [Change()]]


def parse_over(text: str) -> dict[str, tuple[str, ...]]:
    """Return what a sweep goes over and the values it takes, none for all: ``max-pixels=250880,501760,gpu``.

    Raises:
        argparse.ArgumentTypeError: ``text`` names something else, or something twice, or a value that is none.
    """
    over: dict[str, tuple[str, ...]] = {}
    for word in (word.strip() for word in text.split(",")):
        key, equals, value = (part.strip() for part in word.partition("="))
        if key in KEYS and key not in over and (value or not equals):
            over[key] = (value,) if equals else ()
        elif over and word and not equals and key not in KEYS and over[last := list(over)[-1]]:
            over[last] = (*over[last], word)
        else:
            raise argparse.ArgumentTypeError(
                f"{text!r}: {word!r} is nothing to go over; write {', '.join(KEYS)}, each at most once and with "
                "values or without, such as max-pixels=250880,501760,gpu"
            )
    for key in ("max-pixels", "tp"):
        over |= {key: tuple(str(positive(value)) for value in over[key])} if key in over else {}
    return over
