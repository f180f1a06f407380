"""The environment of the engine's container. What the user names replaces ours: a name stands once.

Called by ``context``.
"""

from typing import Any, Final

from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.render.timing import startup_seconds
from vlm_operator.render.volumes import CACHE_PATH, weights_claim
from vlm_operator.sizing.plan import Plan

_FIXED: Final = {
    "HOME": CACHE_PATH,
    "HF_HOME": f"{CACHE_PATH}/huggingface",
    "VLLM_CACHE_ROOT": f"{CACHE_PATH}/vllm",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def environment(spec: VLMDeploymentSpec, plan: Plan) -> list[dict[str, Any]]:
    """Return the variables: the operator's, then the hub's token, then the user's."""
    found: dict[str, dict[str, Any]] = {name: {"value": value} for name, value in _FIXED.items()}
    found["VLLM_ENGINE_READY_TIMEOUT_S"] = {"value": str(startup_seconds(plan))}
    if weights_claim(spec):
        found["HF_HUB_OFFLINE"] = {"value": "1"}
    if secret := spec.model.token_secret_ref:
        reference = {"name": secret.name, "key": secret.key}
        found["HF_TOKEN"] = {"valueFrom": {"secretKeyRef": reference}}
    for variable in spec.engine.env:
        found.pop(variable.name, None)
        found[variable.name] = {"value": variable.value}
    return [{"name": name, **source} for name, source in found.items()]
