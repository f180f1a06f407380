"""What the caches of a server save where images come again, for the closed formulas.

In: ``Question``. Out: the shares of the images that are still prepared and still encoded. A repeated image is one of
the last ``REPEAT_POOL``, each equally likely; a cache that holds fewer knows the repeat with that probability.
"""

from dataclasses import dataclass

from vlm_operator.sizing.assemble import PROCESSOR_CACHE_GIB
from vlm_operator.sizing.host import PIXEL_BYTES
from vlm_operator.sizing.question import Question
from vlm_operator.sizing.traffic.requests import REPEAT_POOL
from vlm_operator.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshShares:
    """Shares of the images: those whose preparation, and those whose encoding, no cache answers."""

    prepared: float
    encoded: float


def fresh_shares(question: Question, step: int) -> FreshShares:
    """Return what is left to do under the declared repeats; ``step`` tokens or one image size the encoder's cache."""
    repeats, demand = question.workload.repeat_percent / 100, question.demand
    patches = demand.mean_patches_per_token * demand.mean_tokens_per_image
    row_bytes = question.shape.vision.patch_row * PIXEL_BYTES
    prepared = PROCESSOR_CACHE_GIB * GIB / (row_bytes * patches) if patches else 0.0
    encoded = max(step, question.rule.maximum().engine_tokens) / demand.mean_tokens_per_image
    return FreshShares(
        prepared=1 - repeats * min(1.0, prepared / REPEAT_POOL), encoded=1 - repeats * min(1.0, encoded / REPEAT_POOL)
    )
