"""Simulated traffic of one engine replica: requests and limits in, percentiles of latency out."""

from vlm_operator.sizing.traffic.arrivals import Bursty, ClosedLoop, Poisson
from vlm_operator.sizing.traffic.requests import ImageWork, Lengths, Randomness, RequestKind, RequestMix
from vlm_operator.sizing.traffic.result import Distribution, Goal, Promise, TrafficResult
from vlm_operator.sizing.traffic.server import KVBlocks, ServerLimits
from vlm_operator.sizing.traffic.simulate import TrafficRun, simulate

__all__ = [
    "Bursty",
    "ClosedLoop",
    "Distribution",
    "Goal",
    "ImageWork",
    "KVBlocks",
    "Lengths",
    "Poisson",
    "Promise",
    "Randomness",
    "RequestKind",
    "RequestMix",
    "ServerLimits",
    "TrafficResult",
    "TrafficRun",
    "simulate",
]
