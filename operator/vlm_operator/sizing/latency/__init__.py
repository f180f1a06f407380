"""Latency of one replica: phases of a request, steps of the engine, and closed formulas over them.

Every figure is a share of the GPU's datasheet that was measured, on this GPU or on one of a near architecture; how
near stands in ``Evidence`` and in the interval.
"""

from vlm_operator.sizing.latency.closed import (
    Replica,
    RequestSeconds,
    RequestWork,
    decode_step_seconds,
    encode_seconds,
    percentiles_seconds,
    prefill_seconds,
    preprocess_seconds,
    queue_seconds,
    request_seconds,
    requests_per_minute,
)
from vlm_operator.sizing.latency.estimate import Estimate, Evidence, Quantity, spread_of, with_interval
from vlm_operator.sizing.latency.step import Layout, StepModel, decoder_model, step_model

__all__ = [
    "Estimate",
    "Evidence",
    "Layout",
    "Quantity",
    "Replica",
    "RequestSeconds",
    "RequestWork",
    "StepModel",
    "decode_step_seconds",
    "decoder_model",
    "encode_seconds",
    "percentiles_seconds",
    "prefill_seconds",
    "preprocess_seconds",
    "queue_seconds",
    "request_seconds",
    "requests_per_minute",
    "spread_of",
    "step_model",
    "with_interval",
]
