"""Plan -> manifests for ``vlmctl render``: the same call as the controller's, so both give the same bytes."""

from typing import Any

from vlm_operator.api.validate import Resource
from vlm_operator.render.manifests import render_manifests
from vlm_operator.report.status_plan import canonical_digest
from vlm_operator.sizing.plan import Plan


def manifests_of(resource: Resource, plan: Plan) -> list[dict[str, Any]]:
    """Return the manifests that the operator would apply for ``resource`` and ``plan``."""
    spec = resource.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [dict(item) for item in render_manifests(resource, plan, spec_digest=canonical_digest(spec))]
