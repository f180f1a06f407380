"""Which modules a quantised checkpoint keeps plain: the exclusion lists of its ``quantization_config``.

In: the list as the file has it, which strangers wrote. Out: ``Exclusions``, asked for each matrix of each layer, so
that long lists are looked up and not walked through, and expressions that could take forever are refused.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from vlm_operator.sizing.shape.weight import Part, Weight

MOST_EXPRESSIONS: Final = 64
MOST_GLOBS: Final = 1024
"""Published lists have a handful of expressions and some globs a layer; plain names may be as many as they like."""
MOST_LETTERS: Final = 200
_EXPRESSION: Final = "re:"

_REPEATED_GROUP: Final = re.compile(r"(?<!\\)\)[*+{]")
_REPETITION: Final = re.compile(r"(?<!\\)[*+}]")
_LOOSE_REPETITION: Final = re.compile(r"(?<!\\)[*+}]\??(?:\((?:\?:)?)*(?![\w$)|-]|\\\.|$)")
_FREE_REPETITIONS, _MOST_REPETITIONS = 2, 4
"""Repetitions that may stand anywhere, and all of them where each ends at a letter or a dot: that bounds the tries."""

_WHOLE_PREFIXES: Final = ("model.language_model.", "language_model.model.")
"""Spellings of a module's place; the shorter ones (``model.``, ``language_model.``, none) are parts of these."""
_PREFIXES: Final = (*_WHOLE_PREFIXES, "model.", "language_model.", "")
TOWER_WORDS: Final = ("visual", "vision_tower", "vision_model", "vision_encoder", "visual_tokenizer")
PROJECTOR_WORDS: Final = (
    "visual",
    "multi_modal_projector",
    "mm_projector",
    "mlp1",
    "embed_vision",
    "connector",
    "merger",
    "resampler",
    "projector",
)
"""How lists name the parts. An export that lists any module of a tower leaves the whole tower plain, and their module
names differ too much to compare one by one; the language model's are compared exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """Modules that stay plain.

    Attributes:
        paths: Dotted names, each a whole path or a part of one.
        expressions: Globs and ``re:`` expressions.
        parts: Parts of a model of which any module is named.
    """

    paths: frozenset[str]
    expressions: tuple[re.Pattern[str], ...]
    parts: frozenset[Part]

    def cover(self, weight: Weight, layer: int) -> bool:
        """Return whether the module of ``weight`` in ``layer`` is named, in any of its spellings."""
        if weight.part in {"vision_tower", "projector"}:
            return weight.part in self.parts
        name = weight.name.format(layer)
        if any(path in self.paths for prefix in _WHOLE_PREFIXES for path in _paths_within(prefix + name)):
            return True
        return any(found.match(prefix + name) for found in self.expressions for prefix in _PREFIXES)


def read_exclusions(listed: Iterable[str]) -> Exclusions:
    """Return what a list excludes.

    Raises:
        ValueError: An expression is none, or matching it could take longer than anybody waits.
    """
    entries = tuple(dict.fromkeys(listed))
    expressions = [entry for entry in entries if entry.startswith(_EXPRESSION)]
    globs = [entry for entry in entries if "*" in entry and not entry.startswith(_EXPRESSION)]
    for kind, found, most in (("expressions", expressions, MOST_EXPRESSIONS), ("globs", globs, MOST_GLOBS)):
        if len(found) > most:
            raise ValueError(f"{len(found):,} {kind} in its exclusion list; at most {most:,} are tried")
    named: dict[Part, tuple[str, ...]] = {"vision_tower": TOWER_WORDS, "projector": PROJECTOR_WORDS}
    text = "\n".join(entries)
    return Exclusions(
        paths=frozenset(entries).difference(expressions, globs),
        # The stars of a translated glob do not backtrack.
        expressions=(*map(_compile, expressions), *(re.compile(fnmatch.translate(glob)) for glob in globs)),
        parts=frozenset(part for part, words in named.items() if any(word in text for word in words)),
    )


def _paths_within(name: str) -> Iterator[str]:
    """Yield every run of segments of a dotted name."""
    segments = name.split(".")
    for start in range(len(segments)):
        for end in range(start + 1, len(segments) + 1):
            yield ".".join(segments[start:end])


def _compile(pattern: str) -> re.Pattern[str]:
    expression = pattern.removeprefix(_EXPRESSION)
    repetitions = len(_REPETITION.findall(expression))
    loose = repetitions > _FREE_REPETITIONS and _LOOSE_REPETITION.search(expression)
    if len(expression) > MOST_LETTERS or repetitions > _MOST_REPETITIONS or loose or _REPEATED_GROUP.search(expression):
        raise ValueError(f"the expression {_shown(pattern)}, which could take too long to match")
    try:
        return re.compile(expression)
    except re.error as error:
        raise ValueError(f"the expression {_shown(pattern)}: {error}") from None


def _shown(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
