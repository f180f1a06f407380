"""Plan -> manifests for ``vlmctl render``: the controller's own call, so both give the same objects."""

import hashlib
import json
from typing import Any

from vlm_operator.api.validate import Resource
from vlm_operator.render.manifests import render_manifests
from vlm_operator.report.status_plan import plan_digest
from vlm_operator.sizing.plan import Plan


def manifests_of(resource: Resource, plan: Plan) -> list[dict[str, Any]]:
    """Return the manifests that the operator would apply for ``resource`` and ``plan``."""
    rendered = render_manifests(resource, plan, spec_digest=_spec_digest(resource), plan_digest=plan_digest(plan))
    return list(rendered)


def _spec_digest(resource: Resource) -> str:
    """Return the digest of the spec as the user wrote it; the controller digests the live object alike."""
    written = resource.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    canonical = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
