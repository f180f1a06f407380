"""Plan -> manifests for ``vlmctl render``: the controller's own call, so both give the same objects."""

from typing import Any

from vlm_operator.api.validate import Resource
from vlm_operator.render.manifests import render_manifests
from vlm_operator.report.status_plan import plan_digest, spec_digest
from vlm_operator.sizing.plan import Plan


def manifests_of(resource: Resource, plan: Plan) -> list[dict[str, Any]]:
    """Return the manifests that the operator would apply for ``resource`` and ``plan``."""
    rendered = render_manifests(resource, plan, spec_digest=spec_digest(resource.spec), plan_digest=plan_digest(plan))
    return list(rendered)
