"""Resource + plan -> one flat mapping for the templates, which choose nothing but presence.

Called by ``manifests``. Nothing here depends on the operator's version or on the time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_operator.api import names as api_names
from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.api.validate import Resource
from vlm_operator.render import names, timing, volumes
from vlm_operator.render.engine_args import render_engine_args
from vlm_operator.render.environment import environment
from vlm_operator.sizing.plan import Plan
from vlm_operator.units import format_mebibytes

GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_GPU_TOLERATION: Final = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
_USER_ID: Final = 2000
"""The user that the image is prepared for, in group 0, which owns the image's writable folders."""
_GROUP_ID: Final = 0


def build_context(
    resource: Resource, plan: Plan, *, spec_digest: str, plan_digest: str, max_unavailable: int
) -> dict[str, Any]:
    """Return every value that a template may name."""
    spec, name = resource.spec, resource.name
    return {
        **_metadata(resource, spec_digest=spec_digest, plan_digest=plan_digest),
        **_rollout(spec, plan, max_unavailable),
        **_scheduling(spec, plan),
        **_identity(name, spec),
        **_container(spec, plan),
        **volumes.cache_claim(name, spec, plan),
        "volumes": volumes.volumes(name, spec, plan),
        "volume_mounts": volumes.volume_mounts(spec),
    }


def _metadata(resource: Resource, *, spec_digest: str, plan_digest: str) -> dict[str, Any]:
    template = resource.spec.pod_template
    labels = names.child_labels(resource.name)
    digests = {names.SPEC_DIGEST_ANNOTATION: spec_digest, names.PLAN_DIGEST_ANNOTATION: plan_digest}
    return {
        "name": names.deployment_name(resource.name),
        "namespace": resource.namespace,
        "service": names.service_name(resource.name),
        "labels": labels,
        "annotations": digests,
        "selector": names.selector_labels(resource.name),
        "pod_labels": {**template.labels, **labels},
        "pod_annotations": dict(template.annotations),
        "owner_references": [_owner_reference(resource)] if resource.uid else [],
    }


def _owner_reference(resource: Resource) -> dict[str, Any]:
    """Return the reference that deletes the child with its owner, also while the operator is down."""
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.KIND,
        "name": resource.name,
        "uid": resource.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _rollout(spec: VLMDeploymentSpec, plan: Plan, max_unavailable: int) -> dict[str, Any]:
    """Return the replicas and the strategy: where none may be missing, a new pod starts before an old one goes."""
    return {
        "replicas": 0 if spec.suspend else plan.replicas,
        "max_surge": 0 if max_unavailable else 1,
        "max_unavailable": max_unavailable,
        "progress_deadline_seconds": timing.startup_seconds(plan) + timing.termination_grace_seconds(),
        "termination_grace_seconds": timing.termination_grace_seconds(),
        "pre_stop_seconds": timing.PRE_STOP_SECONDS,
        "startup_period_seconds": timing.STARTUP_PERIOD_SECONDS,
        "startup_failure_threshold": timing.startup_failure_threshold(plan),
    }


def _scheduling(spec: VLMDeploymentSpec, plan: Plan) -> dict[str, Any]:
    """Return where the pods may run; the GPU of the plan stands over a selector of the user's."""
    template = spec.pod_template
    tolerations = [item.model_dump(by_alias=True, exclude_none=True) for item in template.tolerations]
    return {
        "node_selector": {**template.node_selector, GPU_PRODUCT_LABEL: plan.gpu.product},
        "affinity": _region_affinity(spec.accelerators.regions),
        "tolerations": [_GPU_TOLERATION, *tolerations],
        "priority_class": template.priority_class_name or "",
        "runtime_class": template.runtime_class_name or "",
    }


def _region_affinity(regions: Sequence[str]) -> dict[str, Any]:
    """Return the affinity for nodes of these regions, which a selector could not say of several; empty for none."""
    if not regions:
        return {}
    labelled = {"key": names.REGION_LABEL, "operator": "In", "values": list(regions)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [labelled]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _identity(name: str, spec: VLMDeploymentSpec) -> dict[str, Any]:
    template = spec.pod_template
    return {
        "service_account": template.service_account_name or names.service_account_name(name),
        "image_pull_secrets": [{"name": secret.name} for secret in template.image_pull_secrets],
        "user_id": _USER_ID,
        "group_id": _GROUP_ID,
    }


def _container(spec: VLMDeploymentSpec, plan: Plan) -> Mapping[str, Any]:
    """Return the engine's container; the plan's host memory has the shared memory in it."""
    return {
        "image": spec.engine.image or f"vllm/vllm-openai:v{plan.engine_version}",
        "args": render_engine_args(spec, plan),
        "env": environment(spec, plan),
        "port": names.SERVICE_PORT,
        "cpu": str(plan.host.cpu_cores),
        "memory": format_mebibytes(plan.host.memory_bytes),
        "gpus": str(plan.gpus_per_replica),
    }
