"""The load of a published serving run, in the ways in which rows state it.

Numbers of their own (``concurrency``, ``request_rate``, ``num_prompts``), or words of ``workload``, ``scenario`` or
``flags``: "random text 8000/1000 x128, rate inf", "128 prompts all at once", "--max-concurrency 16".
"""

import re
from dataclasses import dataclass
from math import ceil, inf

from tests.accuracy.fields import Fields, UnclearRowError, count, positive, words
from vlm_operator.sizing.traffic import ClosedLoop, Poisson

CLIENTS = ("concurrency", "max_concurrency", "concurrent_requests", "num_concurrent", "clients", "users")
RATES = ("request_rate", "rate", "request_rate_rps", "rate_rps", "arrival_rate")
REQUESTS = ("num_prompts", "prompts", "num_requests", "requests")
TEXTS = ("load", "workload", "scenario", "flags", "rate_type")

SAID_CLIENTS = r"concurrency[\s=:]*(\d+)|(\d+) (?:concurrent|clients|users|parallel)"
SAID_RATE = r"(?:request.)?rate[\s=:]*(inf|\d+(?:\.\d+)?)|(\d+(?:\.\d+)?) ?(?:req(?:uests?)?/s|rps|qps)"
SAID_REQUESTS = r"num.prompts[\s=:]*(\d+)|(\d+) (?:prompts|requests)\b|\d+/\d+ x ?(\d+)"
SAID_AT_ONCE = r"\bat once\b|\boffline\b"
SAID_ALONE = r"single.stream|\bsynchronous\b"

LOOP_TURNS = 10
"""Requests of each client where a closed loop does not say how many there are."""
LEAST_REQUESTS = 20
LEAST_SECONDS = 600.0
MOST_REQUESTS = 100_000
"""More requests than any published run; beyond, a row would be simulated for minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What clients do to all replicas together.

    Attributes:
        clients: How many each keep one request in flight, None where requests come whatever is in flight.
        rate: Requests per second, infinite where all are sent at once, None in a closed loop.
        requests: How many in all, None where it is not stated.
    """

    clients: int | None = None
    rate: float | None = None
    requests: int | None = None

    def arrivals(self, replicas: int) -> tuple[ClosedLoop | Poisson, float]:
        """Return what one of ``replicas`` sees, and for how many seconds requests come."""
        requests = None if self.requests is None else max(1, self.requests // replicas)
        if self.rate is not None and self.rate < inf:
            rate = self.rate / replicas
            seconds = LEAST_SECONDS if requests is None else requests / rate
            _refuse_beyond(rate * seconds)
            return Poisson(rate=rate), seconds
        clients = requests if self.clients is None else ceil(self.clients / replicas)
        if clients is None:
            raise UnclearRowError("it does not state how many prompts are sent at once")
        requests = requests or max(LEAST_REQUESTS, LOOP_TURNS * clients)
        _refuse_beyond(max(requests, clients))
        return ClosedLoop(clients=clients, requests=requests), LEAST_SECONDS


def read_load(fields: Fields) -> Load | None:
    """Return the load that a row states, None where it states none.

    Raises:
        UnclearRowError: A field of the load cannot be read.
    """
    said = words(fields, *TEXTS).lower()
    clients = count(fields, *CLIENTS) or _whole(SAID_CLIENTS, said)
    requests = count(fields, *REQUESTS) or _whole(SAID_REQUESTS, said)
    rate = _rate(fields, said)
    if clients is None and rate is None:
        if not re.search(SAID_ALONE, said):
            return None
        clients = 1
    return Load(clients=clients, rate=rate, requests=requests)


def _rate(fields: Fields, said: str) -> float | None:
    plain = {name: value for name, value in fields.items() if str(value).strip().lower() not in {"inf", "infinity"}}
    if any(name in fields and name not in plain for name in RATES) or re.search(SAID_AT_ONCE, said):
        return inf
    stated = positive(plain, *RATES)
    if stated is not None:
        return stated
    found = re.search(SAID_RATE, said)
    return None if found is None else float(found[1] or found[2]) or None


def _whole(pattern: str, said: str) -> int | None:
    found = re.search(pattern, said)
    return None if found is None else int(next(group for group in found.groups() if group)) or None


def _refuse_beyond(requests: float) -> None:
    if requests > MOST_REQUESTS:
        raise UnclearRowError(f"more than {MOST_REQUESTS} requests are not simulated")
