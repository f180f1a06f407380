"""Seconds of a pod's life: how long it may start, and how long it takes to leave."""

from typing import Final

from vlm_operator.sizing.plan import Plan
from vlm_operator.units import ceil_div

PRE_STOP_SECONDS: Final = 10
"""Until the endpoints of the Service no longer list the pod."""
SHUTDOWN_SECONDS: Final = 60
"""For requests that run (``--shutdown-timeout``); the engine's default of 0 aborts them."""
EXIT_SECONDS: Final = 15
"""For the engine to end after the last request."""
STARTUP_PERIOD_SECONDS: Final = 10

_BASE_STARTUP_SECONDS: Final = 900
"""Image start, compilation, profiling and graph capture, generously."""
_SLOWEST_BYTES_PER_SECOND: Final = 50_000_000
"""A slow download or a slow network volume; a pod that is killed while it loads never gets any further."""
_STARTUP_STEP_SECONDS: Final = 600
"""Rounding, so that a better estimate of the weights does not change the pod template."""


def termination_grace_seconds() -> int:
    """Return the pod's grace period: leaving the endpoints, draining, exiting."""
    return PRE_STOP_SECONDS + SHUTDOWN_SECONDS + EXIT_SECONDS


def weights_bytes(plan: Plan) -> int:
    """Return the weights of one replica over all its GPUs; all their memory where no part says so."""
    parts = [part.size_bytes for part in plan.memory.parts if part.name.startswith("weights")]
    return (sum(parts) or plan.memory.total_bytes) * plan.gpus_per_replica


def startup_seconds(plan: Plan) -> int:
    """Return how long a pod may take from its start to its first answer."""
    seconds = _BASE_STARTUP_SECONDS + ceil_div(weights_bytes(plan), _SLOWEST_BYTES_PER_SECOND)
    return ceil_div(seconds, _STARTUP_STEP_SECONDS) * _STARTUP_STEP_SECONDS


def startup_failure_threshold(plan: Plan) -> int:
    """Return how many startup probes may fail."""
    return ceil_div(startup_seconds(plan), STARTUP_PERIOD_SECONDS)
