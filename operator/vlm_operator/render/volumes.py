"""Where a pod may write, and where its weights come from: volumes, mounts and the claim of the cache.

The root file system is read-only; ``/cache`` holds everything that is downloaded or compiled and lives as
long as the volume behind it. Called by ``context``.
"""

from typing import Any, Final

from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.api.storage import Cache, PersistentVolumeClaim
from vlm_operator.render.engine_args import WEIGHTS_PATH
from vlm_operator.render.names import cache_claim_name
from vlm_operator.render.timing import weights_bytes
from vlm_operator.sizing.plan import Plan
from vlm_operator.units import GIB, ceil_div, format_mebibytes

CACHE_PATH: Final = "/cache"
_TEMPORARY_SIZE: Final = "16Gi"
_CACHE_STEP_GIB: Final = 20
"""Rounding of the cache's size: a claim cannot shrink, so a slightly different plan must not ask for less."""


def volumes(name: str, spec: VLMDeploymentSpec, plan: Plan) -> list[dict[str, Any]]:
    """Return the pod's volumes."""
    shared = {"medium": "Memory", "sizeLimit": format_mebibytes(plan.host.shared_memory_bytes)}
    found: list[dict[str, Any]] = [
        {"name": "shared-memory", "emptyDir": shared},
        {"name": "temporary", "emptyDir": {"sizeLimit": _TEMPORARY_SIZE}},
    ]
    if _cache(spec):
        found.append({"name": "cache", "persistentVolumeClaim": {"claimName": cache_claim_name(name)}})
    else:
        found.append({"name": "cache", "emptyDir": {}})
    if claim := weights_claim(spec):
        source = {"claimName": claim.claim_name, "readOnly": True}
        found.append({"name": "weights", "persistentVolumeClaim": source})
    return found


def volume_mounts(spec: VLMDeploymentSpec) -> list[dict[str, Any]]:
    """Return where the engine's container finds the volumes."""
    found: list[dict[str, Any]] = [
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - the engine's own queues look here
        {"name": "temporary", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
        {"name": "cache", "mountPath": CACHE_PATH},
    ]
    if weights_claim(spec):
        found.append({"name": "weights", "mountPath": WEIGHTS_PATH, "readOnly": True})
    return found


def cache_claim(name: str, spec: VLMDeploymentSpec, plan: Plan) -> dict[str, Any]:
    """Return the fields of the claim for the cache; an empty name where none is wanted."""
    cache = _cache(spec)
    if cache is None:
        return {"cache_claim": "", "cache_size": "", "cache_access_mode": "", "cache_storage_class": ""}
    return {
        "cache_claim": cache_claim_name(name),
        "cache_size": cache.size or _default_cache_size(plan),
        "cache_access_mode": cache.access_mode,
        "cache_storage_class": cache.storage_class_name or "",
    }


def weights_claim(spec: VLMDeploymentSpec) -> PersistentVolumeClaim | None:
    """Return the claim that already holds the weights, if the spec names one."""
    return spec.model.storage.persistent_volume_claim if spec.model.storage else None


def _cache(spec: VLMDeploymentSpec) -> Cache | None:
    return spec.model.storage.cache if spec.model.storage else None


def _default_cache_size(plan: Plan) -> str:
    """Return the weights and a quarter more, in steps of 20 GiB."""
    return f"{ceil_div(weights_bytes(plan) * 5 // 4, _CACHE_STEP_GIB * GIB) * _CACHE_STEP_GIB}Gi"
