"""When requests arrive: independently, in bursts, or when an earlier one ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from vlm_operator.sizing.traffic.requests import Randomness


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent arrivals at ``rate`` requests per second."""

    rate: float

    def times(self, generator: Randomness) -> Iterator[float]:
        """Return arrival times in seconds, without end."""
        now, draw, rate = 0.0, generator.random, self.rate
        while True:
            now -= log(1.0 - draw()) / rate
            yield now


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursty:
    """Arrivals at a mean ``rate`` that alternate between calm and bursts.

    During a burst the rate is ``peak`` times the mean; bursts take ``burst_seconds`` and fill ``burst_share`` of the
    time, so the calm rate is what keeps the mean: a Poisson process whose rate steps up and down. The durations are
    fixed, so that a few cycles already show what many would; half a calm comes first, so that whole cycles end with
    the other half. ``peak`` x ``burst_share`` is at most 1.
    """

    rate: float
    peak: float
    burst_share: float
    burst_seconds: float

    @property
    def cycle_seconds(self) -> float:
        """One calm and one burst."""
        return self.burst_seconds / self.burst_share

    def times(self, generator: Randomness) -> Iterator[float]:
        """Return arrival times in seconds, without end."""
        draw = generator.random
        calm = self.rate * max(0.0, 1 - self.peak * self.burst_share) / (1 - self.burst_share)
        calm_seconds = self.cycle_seconds - self.burst_seconds
        now, until = 0.0, -calm_seconds / 2
        bursting = True
        while True:
            bursting = not bursting
            until += self.burst_seconds if bursting else calm_seconds
            rate = self.rate * self.peak if bursting else calm
            while rate:
                now -= log(1.0 - draw()) / rate
                if now > until:
                    break  # what would have come later is drawn anew at the next state's rate: no memory
                yield now
            now = until


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """``clients`` that each send the next request when the last one has ended, ``requests`` in all."""

    clients: int
    requests: int


Arrivals = Poisson | Bursty | ClosedLoop
