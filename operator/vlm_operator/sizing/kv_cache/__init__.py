"""The KV cache as the engine plans it: settings -> layout of groups and blocks -> a plan for given memory."""

from vlm_operator.sizing.kv_cache.dtypes import kv_bytes_per_token
from vlm_operator.sizing.kv_cache.groups import KVGroups
from vlm_operator.sizing.kv_cache.layout import KVLayout, kv_layout, lay_out
from vlm_operator.sizing.kv_cache.legality import KVRefusal, check_kv_cache
from vlm_operator.sizing.kv_cache.plan import KVCachePlan, longest_context, plan_kv_cache
from vlm_operator.sizing.kv_cache.specs import KVSettings

__all__ = [
    "KVCachePlan",
    "KVGroups",
    "KVLayout",
    "KVRefusal",
    "KVSettings",
    "check_kv_cache",
    "kv_bytes_per_token",
    "kv_layout",
    "lay_out",
    "longest_context",
    "plan_kv_cache",
]
