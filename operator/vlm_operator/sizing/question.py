"""What one candidate is judged by: the candidate, what is the same for all candidates, and what was chosen on the way.

Made by ``search.py`` and ``judge.py``; read by ``judge.py`` and ``assemble.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vlm_operator.catalogue.types import MemoryCalibration
from vlm_operator.sizing.demand import Demand
from vlm_operator.sizing.inventory import NodeShape
from vlm_operator.sizing.plan import EncoderParallelMode
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.tokens.types import ImageRule
from vlm_operator.sizing.workload import Constraints, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node shape and how many of its GPUs one replica takes."""

    node: NodeShape
    tensor_parallel_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything about the model and the workload that is the same for all candidates."""

    model_id: str
    config: Mapping[str, Any]
    shape: ModelShape
    calibration: MemoryCalibration
    rule: ImageRule
    demand: Demand
    workload: Workload
    constraints: Constraints
    engine_version: str
    trust_remote_code: bool
    remembered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What was chosen before memory is looked at: tower mode, context, batch, replicas and their load."""

    mode: EncoderParallelMode
    max_model_len: int
    max_num_seqs: int
    replicas: int
    running: int
