"""What may be judged: every place of an inventory, and every way to lay the admitted checkpoints out on it.

In: inventory, constraints and questions. Out: node shapes with tensor parallel sizes, and a ``Candidate`` with its
``Question`` for each layout. Whether the engine takes it is judged in ``judge.py``.
"""

from collections.abc import Iterator, Sequence

from vlm_operator.sizing.inventory import Inventory, NodeShape
from vlm_operator.sizing.plan import EncoderParallelMode
from vlm_operator.sizing.question import Candidate, Question
from vlm_operator.sizing.workload import Constraints

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8, 16)

Place = tuple[NodeShape, int]
"""Nodes, and how many GPUs of one of them a replica takes."""


def enumerate_places(inventory: Inventory, constraints: Constraints) -> tuple[Place, ...]:
    """Return each node shape with each tensor parallel size that one such node can hold."""
    wanted = constraints.only_size
    sizes = TENSOR_PARALLEL_SIZES if wanted is None else (wanted,)
    limit = constraints.max_gpus_per_replica or max(sizes)
    return tuple(
        (shape, size)
        for shape in sorted(inventory.shapes, key=lambda shape: (shape.gpu.id, shape.gpus_per_node))
        for size in sizes
        if size <= min(shape.gpus_per_node, limit)
    )


def enumerate_layouts(
    node: NodeShape, size: int, questions: Sequence[Question]
) -> Iterator[tuple[Candidate, Question]]:
    """Return every way to lay the model out on ``size`` GPUs of ``node``, the preferred ones first."""
    for question in questions:
        for kv_cache_dtype in _kv_cache_dtypes(question.constraints):
            for mode in _encoder_modes(question, size):
                candidate = Candidate(
                    node=node, tensor_parallel_size=size, encoder_mode=mode, kv_cache_dtype=kv_cache_dtype
                )
                yield candidate, question


def _kv_cache_dtypes(constraints: Constraints) -> tuple[str, ...]:
    asked = constraints.asked.kv_cache_dtype
    return constraints.kv_cache_dtypes if asked is None else (asked,)


def _encoder_modes(question: Question, size: int) -> tuple[EncoderParallelMode, ...]:
    asked = question.constraints.asked.mm_encoder_tp_mode
    if asked is not None:
        return (asked,)
    return ("weights", "data") if size > 1 and question.shape.supports_encoder_data_parallel else ("weights",)
