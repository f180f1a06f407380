"""The CustomResourceDefinition, generated from the models. Pure: ``tools/generate.py`` writes the file.

Pydantic's JSON schema becomes a structural schema: references are put in place; ``null`` branches, titles and
defaults go; integers get their format. Rules of the models arrive as ``x-kubernetes-validations``.
"""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.api import names
from vlm_operator.api.base import ApiModel, Rule
from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.api.status import VLMDeploymentStatus

NAME_RULE: Final = Rule(
    cel=f"self.metadata.name.size() <= {names.MAX_NAME_LENGTH} && self.metadata.name.matches('{names.NAME_PATTERN}')",
    message=names.NAME_MESSAGE,
    holds=lambda _: True,
)
_KEPT: Final = (
    "type",
    "format",
    "description",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
_LATENCY: Final = ".status.estimate.ttftMilliseconds.p95"
_COLUMNS: Final = (
    ("Model", "string", ".spec.model.id", 0, "The model that is served."),
    ("GPU", "string", ".status.summary.accelerator", 0, "GPUs of one replica."),
    ("Replicas", "string", ".status.summary.ready", 0, "Ready and planned replicas."),
    ("Max-Len", "integer", ".status.plan.maxModelLen", 0, "Longest request in tokens."),
    ("Img-Tokens", "string", ".status.summary.imageTokens", 0, "Tokens of one image, 99th percentile."),
    ("Cost/h", "string", ".status.summary.hourlyCost", 0, "Price of all replicas per hour."),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0, "Whether it serves."),
    ("Reason", "string", ".status.summary.reason", 0, "Why it does not serve, or Serving."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since it was created."),
    ("TP", "integer", ".status.plan.tensorParallelSize", 1, "GPUs over which each layer is split."),
    ("Max-Pixels", "integer", ".status.plan.maxPixels", 1, "Cap on an image in pixels."),
    ("Headroom", "string", ".status.summary.headroom", 1, "Memory left on each GPU."),
    ("TTFT", "integer", _LATENCY, 1, "Expected time to the first token in ms, 95th percentile."),
)


def custom_resource_definition() -> dict[str, Any]:
    """Return the whole CustomResourceDefinition as a document; equal on every call."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": [names.CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def structural_schema(model: type[ApiModel]) -> dict[str, Any]:
    """Return the structural schema of ``model``."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _version() -> dict[str, Any]:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.scaling.minReplicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description}
            for name, kind, path, priority, description in _COLUMNS
        ],
    }


def _root_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A vision-language model and the load on it; the operator sizes and runs it.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"apiVersion is {names.API_VERSION}."},
            "kind": {"type": "string", "description": f"kind is {names.KIND}."},
            "metadata": {"type": "object"},
            "spec": structural_schema(VLMDeploymentSpec),
            "status": structural_schema(VLMDeploymentStatus),
        },
        "x-kubernetes-validations": [NAME_RULE.as_validation()],
    }


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``schema`` with references in place and only what a structural schema may hold."""
    merged = _resolve(schema, definitions)
    result: dict[str, Any] = {key: merged[key] for key in _KEPT if key in merged}
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in merged:
        result["properties"] = {name: _structural(value, definitions) for name, value in merged["properties"].items()}
    if "items" in merged:
        result["items"] = _structural(merged["items"], definitions)
    if isinstance(merged.get("additionalProperties"), Mapping):
        result["additionalProperties"] = _structural(merged["additionalProperties"], definitions)
    if result.get("type") == "integer":
        result["format"] = "int64" if result.get("maximum", 0) > 2**31 - 1 else "int32"
    return result


def _resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``schema`` with its reference or its branch beside null merged in; its own words win."""
    outer = {key: value for key, value in schema.items() if key not in {"anyOf", "$ref"}}
    if "$ref" in schema:
        return _resolve(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions) | outer
    branches = [branch for branch in schema.get("anyOf", ()) if branch.get("type") != "null"]
    if branches:
        (branch,) = branches
        return _resolve(branch, definitions) | outer
    return outer
