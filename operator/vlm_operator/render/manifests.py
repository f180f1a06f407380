"""Resource + plan -> the children as plain objects, ready for server-side apply.

One template makes one object and is parsed back, so what comes out is a valid mapping or a ``RenderError``.
The order is the order in which to apply. The same input gives the same bytes. Called by the controller and
``vlmctl``.
"""

import json
from typing import Any, Final

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

from vlm_operator.api.validate import Resource
from vlm_operator.errors import RenderError
from vlm_operator.render.context import build_context
from vlm_operator.sizing.plan import Plan

_SERVICE_ACCOUNT: Final = "service_account.yaml.j2"
_CACHE_CLAIM: Final = "cache_claim.yaml.j2"
_DEPLOYMENT: Final = "deployment.yaml.j2"
_SERVICE: Final = "service.yaml.j2"
_DISRUPTION_BUDGET: Final = "disruption_budget.yaml.j2"


def render_manifests(
    resource: Resource, plan: Plan, *, spec_digest: str, plan_digest: str, max_unavailable: int = 1
) -> tuple[dict[str, Any], ...]:
    """Return the children of ``resource`` that serve ``plan``.

    Args:
        resource: The VLMDeployment; it becomes the owner of every child.
        plan: What to run.
        spec_digest: Digest of the spec that was planned; an annotation of the Deployment.
        plan_digest: ``report.status_plan.plan_digest(plan)``; an annotation of the Deployment.
        max_unavailable: How many replicas may be missing while a new version rolls out; 0 where there is room for one
            more than there are.

    Raises:
        RenderError: a template did not give one valid object, or the name gives no valid Service.
    """
    context = build_context(
        resource, plan, spec_digest=spec_digest, plan_digest=plan_digest, max_unavailable=max_unavailable
    )
    return tuple(_render(template, context) for template in _templates(resource, context))


def dump_manifests(manifests: tuple[dict[str, Any], ...]) -> str:
    """Return ``manifests`` as one YAML stream for ``kubectl apply -f -``."""
    return "---\n".join(
        yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=10_000) for manifest in manifests
    )


def _templates(resource: Resource, context: dict[str, Any]) -> list[str]:
    """Return the templates whose objects this resource needs."""
    needed = [_DEPLOYMENT, _SERVICE]
    if context["cache_claim"]:
        needed.insert(0, _CACHE_CLAIM)
    if not resource.spec.pod_template.service_account_name:
        needed.insert(0, _SERVICE_ACCOUNT)
    if context["replicas"] > 1:
        needed.append(_DISRUPTION_BUDGET)
    return needed


def _render(template: str, context: dict[str, Any]) -> dict[str, Any]:
    try:
        manifest = yaml.safe_load(_ENVIRONMENT.get_template(template).render(context))
    except (TemplateError, yaml.YAMLError) as error:
        raise RenderError(f"{template}: {error}") from error
    if not isinstance(manifest, dict) or not manifest.get("kind"):
        raise RenderError(f"{template}: gave no Kubernetes object")
    return {**manifest, "metadata": _without_empty(manifest["metadata"])}


def _without_empty(metadata: dict[str, Any]) -> dict[str, Any]:
    """Leave out the namespace and the owner of a resource that is on no cluster yet: ``vlmctl render``."""
    return {key: value for key, value in metadata.items() if value}


def _as_json(value: Any) -> str:
    """Return ``value`` as JSON, which is YAML that no text can break out of."""
    return json.dumps(value)


def _environment() -> Environment:
    environment = Environment(  # noqa: S701 - the output is YAML, and every value passes through JSON
        loader=PackageLoader("vlm_operator.render"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["json"] = _as_json
    return environment


_ENVIRONMENT: Final = _environment()
