"""The CRD is a structural schema that says what the models say."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlm_operator.api.base import Rule
from vlm_operator.api.crd import custom_resource_definition
from vlm_operator.api.names import CONDITION_TYPES
from vlm_operator.api.spec import Traffic, VLMDeploymentSpec
from vlm_operator.api.status import VLMDeploymentStatus

ROOT = Path(__file__).parents[2]
VERSION = custom_resource_definition()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below ``schema`` with its path; list items and map values have paths of their own."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from nodes(schema[key], path + mark)


SPEC_AND_STATUS = [
    (path, node) for part in ("spec", "status") for path, node in nodes(SCHEMA["properties"][part], part)
]


def test_the_committed_file_is_what_the_models_say() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_field_of_the_spec_is_described_by_name_and_states_its_default() -> None:
    for path, node in SPEC_AND_STATUS:
        name = path.rsplit(".", 1)[-1]
        if path.startswith("spec.") and name.isalnum():
            description = node["description"]
            assert description.startswith(f"{name} "), path
            assert "Required." in description or "Default: " in description, path


def test_every_field_of_the_status_is_described_by_name() -> None:
    for path, node in SPEC_AND_STATUS:
        name = path.rsplit(".", 1)[-1]
        if path.startswith("status.") and name.isalnum():
            assert node["description"].startswith(f"{name} "), path


def test_what_is_required_says_so_and_nothing_else_does() -> None:
    for path, node in SPEC_AND_STATUS:
        for name, inner in node.get("properties", {}).items():
            says_so = inner["description"].endswith("Required.")
            if path.startswith("spec"):
                assert says_so == (name in node.get("required", [])), f"{path}.{name}"


def test_the_documented_defaults_are_those_of_the_models() -> None:
    defaults = VLMDeploymentSpec.model_fields
    assert defaults["suspend"].default is False
    workload = SCHEMA["properties"]["spec"]["properties"]["workload"]["properties"]
    assert "p50 300, p99 900" in workload["text"]["description"]
    assert "p50 150, max 500" in workload["output"]["description"]
    assert "concurrentRequests 1" in workload["traffic"]["description"]


def test_nothing_is_nullable_defaulted_or_a_float() -> None:
    for path, node in SPEC_AND_STATUS:
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert not {"default", "nullable", "anyOf", "$ref", "title"} & node.keys(), path


def test_every_integer_has_bounds_and_a_format_that_holds_them() -> None:
    for path, node in SPEC_AND_STATUS:
        if node["type"] == "integer":
            bits = {"int32": 31, "int64": 63}[node["format"]]
            if "enum" not in node:
                assert -(2**bits) <= node["minimum"] <= node["maximum"] < 2**bits, path


def test_every_list_of_the_spec_is_bounded_so_that_rules_have_a_cost() -> None:
    for path, node in SPEC_AND_STATUS:
        if node["type"] == "array":
            assert "maxItems" in node, path


def test_conditions_are_merged_by_type() -> None:
    conditions = SCHEMA["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) >= {
        "type",
        "status",
        "reason",
        "message",
        "lastTransitionTime",
    }
    assert all(kind in conditions["description"] for kind in CONDITION_TYPES)


def test_every_path_of_a_column_and_of_scale_exists() -> None:
    known = {f".{path}" for path, _ in SPEC_AND_STATUS}
    paths = [column["jsonPath"] for column in VERSION["additionalPrinterColumns"]]
    paths += VERSION["subresources"]["scale"].values()
    for path in paths:
        assert path in known or path.startswith((".metadata.", ".status.conditions[?")), path


def test_a_rule_reaches_the_schema_in_both_forms() -> None:
    traffic = SCHEMA["properties"]["spec"]["properties"]["workload"]["properties"]["traffic"]
    assert traffic["x-kubernetes-validations"] == [rule.as_validation() for rule in Traffic.rules]


def test_a_rule_quotes_values_only_where_it_is_asked_to() -> None:
    rule = Rule(cel="self.a <= self.b", message="swap them", holds=bool, field="a", quoted=("a", "b"))
    assert rule.explain({"a": 2, "b": 1}) == "a is 2, b is 1: swap them"
    assert rule.as_validation() == {"rule": "self.a <= self.b", "message": "swap them", "fieldPath": ".a"}


def test_the_status_model_reads_a_whole_status() -> None:
    status = VLMDeploymentStatus.model_validate_json(
        '{"replicas": 1, "noFit": {"reason": "NoFit", "nearest": [{"accelerator": "L4"}]},'
        ' "estimate": {"memoryPerGPU": [{"part": "headroom", "mebibytes": -3}]}}'
    )
    assert status.estimate is not None
    assert status.estimate.memory_per_gpu is not None
    assert status.estimate.memory_per_gpu[0].mebibytes == -3


def test_the_definition_is_the_same_on_every_call() -> None:
    assert custom_resource_definition() == custom_resource_definition()
