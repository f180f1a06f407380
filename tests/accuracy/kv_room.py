"""The KV cache of a published run: what the memory model leaves under the run's flags and release."""

from tests.accuracy.encoder_profile import context
from tests.accuracy.memory import predict
from tests.accuracy.memory_logs import LogConditions
from tests.accuracy.models import PublishedModel
from vlm_operator.sizing.kv_cache import KVSettings, kv_layout, plan_kv_cache
from vlm_operator.sizing.traffic import KVBlocks
from vlm_operator.sizing.trial import kv_blocks
from vlm_operator.units import GIB


def kv_room(conditions: LogConditions, model: PublishedModel) -> KVBlocks:
    """Return the blocks that requests may take on each rank."""
    settings = KVSettings(
        tensor_parallel_size=conditions.tensor_parallel_size,
        capability=conditions.gpu.compute_capability or (0, 0),
        dtype=conditions.kv_dtype,
    )
    cache = plan_kv_cache(
        kv_layout(model.shape, settings),
        max_model_len=context(conditions, model),
        max_in_flight_tokens=2 * conditions.max_num_batched_tokens,
        available_bytes=int(predict(conditions, model, "value").kv_cache * GIB),
    )
    return kv_blocks(cache)
