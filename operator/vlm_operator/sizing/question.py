"""What one candidate is judged by: the candidate, what is the same for all candidates, and what was chosen on the way.

Made by ``search.py`` and ``judge.py``; read by ``judge.py`` and ``assemble.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vlm_operator.catalogue.types import LatencyCalibration, MemoryCalibration
from vlm_operator.sizing import latency
from vlm_operator.sizing.demand import Demand
from vlm_operator.sizing.inventory import NodeShape
from vlm_operator.sizing.legality import LengthRefusal
from vlm_operator.sizing.plan import EncoderParallelMode
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.tokens.types import ImageRule
from vlm_operator.sizing.workload import Constraints, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node shape, how many of its GPUs one replica takes, and how the model is laid out on them.

    ``max_num_batched_tokens`` None stands for the largest step that memory allows.
    """

    node: NodeShape
    tensor_parallel_size: int
    encoder_mode: EncoderParallelMode = "weights"
    kv_cache_dtype: str = "auto"
    max_num_batched_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything about one checkpoint and the workload that is the same for all candidates.

    ``declared_id`` is the model that the user asked for; ``model_id`` is the checkpoint that would be served, the same
    or one that holds it in a smaller format.
    """

    declared_id: str
    model_id: str
    shape: ModelShape
    calibration: MemoryCalibration
    latency: LatencyCalibration
    rule: ImageRule
    demand: Demand
    max_model_len: int | LengthRefusal
    workload: Workload
    constraints: Constraints
    engine_version: str
    trust_remote_code: bool
    remembered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is the same for every replica count of one candidate.

    ``works`` maps percentiles of the declared mix to a request that has all of it: so much to read, to see and to
    write. ``lightest`` has the images alone, with the median of the rest: no request of that percentile is less work.
    ``typical`` is the mean one, which the others are like. ``slack`` is the share by which closed formulas may miss a
    target or the traffic where a trial is to decide; 0 where they do.
    """

    max_model_len: int
    runner: latency.Replica
    works: Mapping[int, latency.RequestWork]
    lightest: Mapping[int, latency.RequestWork]
    typical: latency.RequestWork
    slack: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What was chosen before memory is looked at: context, batch, replicas and their load.

    ``serving`` of the ``replicas`` carry the load; the others are spare.
    """

    max_model_len: int
    max_num_seqs: int
    serving: int
    replicas: int
    running: int
    preprocessing_cores: int
