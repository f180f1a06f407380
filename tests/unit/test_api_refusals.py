"""What a user can get wrong in a VLMDeployment, and that the answer says where and what to do."""

import copy
from typing import Any

import pytest

from vlm_operator.api.validate import parse_resource
from vlm_operator.errors import InputError, Problem


def valid_document() -> dict[str, Any]:
    return {
        "apiVersion": "vlm-operator.dev/v1alpha1",
        "kind": "VLMDeployment",
        "metadata": {"name": "invoices"},
        "spec": {
            "model": {"id": "Qwen/Qwen2.5-VL-7B-Instruct"},
            "workload": {"images": {"sizes": [{"width": 4032, "height": 3024}]}},
        },
    }


def with_value(path: str, value: Any) -> dict[str, Any]:
    """The valid document with ``value`` at the dotted ``path``; numbers step into lists."""
    document: Any = copy.deepcopy(valid_document())
    *steps, last = path.split(".")
    inner = document
    for step in steps:
        inner = inner[int(step)] if step.isdigit() else inner.setdefault(step, {})
    if isinstance(inner, list):
        inner[int(last)] = value
    else:
        inner[last] = value
    result: dict[str, Any] = document
    return result


def problems_of(document: dict[str, Any]) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        parse_resource(document)
    return list(caught.value.problems)


ONE_SIZE = "spec.workload.images.sizes.0"
REFUSALS = {
    "a typo gets the nearest name": (
        "spec.model.revison",
        "main",
        "spec.model.revison",
        "did you mean revision?",
    ),
    "the Python spelling of a field is no field": (
        "spec.scaling.min_replicas",
        1,
        "spec.scaling.min_replicas",
        "did you mean minReplicas?",
    ),
    "a name far from all gets the list": (
        "spec.workload.zzz",
        1,
        "spec.workload.zzz",
        "known here: images, text",
    ),
    "a typo at the top is found": ("sepc", {}, "sepc", "did you mean spec?"),
    "another kind": ("kind", "Deployment", "kind", "write kind: VLMDeployment"),
    "another version": ("apiVersion", "v1", "apiVersion", "write apiVersion: vlm-operator.dev/v1alpha1"),
    "a name with dots": ("metadata.name", "a.b", "metadata.name", "no dots"),
    "a name with a line break": ("metadata.name", "a\n", "metadata.name", "lower-case letters"),
    "a name too long for a Service": ("metadata.name", "a" * 58, "metadata.name", "at most 57"),
    "a model id with spaces": ("spec.model.id", "Qwen 2.5", "spec.model.id", '"Qwen 2.5" does not match'),
    "a model id that climbs out": ("spec.model.id", "../etc", "spec.model.id", "such as Qwen/"),
    "a number in quotes": (
        f"{ONE_SIZE}.width",
        "4032",
        "spec.workload.images.sizes[0].width",
        "without quotes",
    ),
    "no width": (f"{ONE_SIZE}.width", 0, "spec.workload.images.sizes[0].width", "write 1 or more"),
    "a width beyond every format": (
        f"{ONE_SIZE}.width",
        65536,
        "spec.workload.images.sizes[0].width",
        "65536 is too large; write 65535 or less",
    ),
    "an image that the engine does not decode": (
        ONE_SIZE,
        {"width": 50000, "height": 50000},
        "spec.workload.images.sizes[0]",
        "width is 50000, height is 50000: one image has more than 178956970 pixels",
    ),
    "an image one row too high": (
        ONE_SIZE,
        {"width": 13378, "height": 13378},
        "spec.workload.images.sizes[0]",
        "scale the image down",
    ),
    "half a pixel": (
        f"{ONE_SIZE}.height",
        1.5,
        "spec.workload.images.sizes[0].height",
        "1.5 is not a whole number",
    ),
    "no sizes": ("spec.workload.images.sizes", [], "spec.workload.images.sizes", "at least 1"),
    "too many sizes": (
        "spec.workload.images.sizes",
        [{"width": 1 + n, "height": 1} for n in range(257)],
        "spec.workload.images.sizes",
        "has 257 entries; at most 256",
    ),
    "one size twice": (
        "spec.workload.images.sizes",
        [{"width": 5, "height": 6}, {"width": 5, "height": 6, "weight": 2}],
        "spec.workload.images.sizes",
        "entries 0 and 1 both have width 5, height 6; merge them",
    ),
    "sizes that are no list": ("spec.workload.images.sizes", {}, "spec.workload.images.sizes", "hyphen"),
    "one count twice": (
        "spec.workload.images.perRequest",
        [{"count": 1}, {"count": 1}],
        "spec.workload.images.perRequest",
        "both have count 1",
    ),
    "no images at all": (
        "spec.workload.images.perRequest",
        [{"count": 0}],
        "spec.workload.images.perRequest",
        "count 1 or more",
    ),
    "a weight of nothing": (
        f"{ONE_SIZE}.weight",
        0,
        "spec.workload.images.sizes[0].weight",
        "write 1 or more",
    ),
    "a long prompt shorter than a typical one": (
        "spec.workload.text.promptTokens",
        {"p50": 900, "p99": 300},
        "spec.workload.text.promptTokens.p50",
        "p50 is 900, p99 is 300",
    ),
    "a longest answer shorter than a typical one": (
        "spec.workload.output.tokens",
        {"p50": 900, "max": 300},
        "spec.workload.output.tokens.p50",
        "raise max",
    ),
    "half of the answer's length": (
        "spec.workload.output.tokens",
        {"p50": 900},
        "spec.workload.output.tokens.max",
        "is required; max is the most tokens",
    ),
    "two kinds of traffic": (
        "spec.workload.traffic",
        {"requestsPerMinute": 1, "concurrentRequests": 1},
        "spec.workload.traffic",
        "exactly one of",
    ),
    "no kind of traffic": ("spec.workload.traffic", {}, "spec.workload.traffic", "exactly one of"),
    "a burst of nothing": (
        "spec.workload.traffic",
        {"concurrentRequests": 1, "burstPercent": 200},
        "spec.workload.traffic.burstPercent",
        "needs requestsPerMinute",
    ),
    "another percentile": (
        "spec.objectives.ttft",
        {"percentile": 90, "milliseconds": 1},
        "spec.objectives.ttft.percentile",
        "90 is not known; write 50, 95 or 99",
    ),
    "another inventory": (
        "spec.accelerators.inventory",
        "cluster",
        "spec.accelerators.inventory",
        "'Cluster'",
    ),
    "more GPUs than a node has": (
        "spec.accelerators.maxPerReplica",
        17,
        "spec.accelerators.maxPerReplica",
        "16 or less",
    ),
    "more nodes than a replica could have": (
        "spec.accelerators.maxNodesPerReplica",
        0,
        "spec.accelerators.maxNodesPerReplica",
        "1 or more",
    ),
    "a region that no label can have": (
        "spec.accelerators.regions",
        ["eu west"],
        "spec.accelerators.regions[0]",
        "eu west",
    ),
    "replicas the wrong way round": (
        "spec.scaling",
        {"minReplicas": 3, "maxReplicas": 1},
        "spec.scaling.minReplicas",
        "minReplicas is 3, maxReplicas is 1",
    ),
    "no replica but spare ones": (
        "spec.scaling",
        {"spareReplicas": 2, "maxReplicas": 2},
        "spec.scaling.spareReplicas",
        "spareReplicas is 2, maxReplicas is 2",
    ),
    "two kinds of storage": (
        "spec.model.storage",
        {"cache": {}, "persistentVolumeClaim": {"claimName": "a"}},
        "spec.model.storage",
        "exactly one of",
    ),
    "no kind of storage": ("spec.model.storage", {}, "spec.model.storage", "or leave storage out"),
    "a path that climbs out": (
        "spec.model.storage",
        {"persistentVolumeClaim": {"claimName": "a", "path": "a/../../b"}},
        "spec.model.storage.persistentVolumeClaim.path",
        "does not match",
    ),
    "a variable that is a number": (
        "spec.engine.env",
        [{"name": "A", "value": 1}],
        "spec.engine.env[0].value",
        "1 is not text; put quotes around it",
    ),
    "a variable twice": (
        "spec.engine.env",
        [{"name": "A"}, {"name": "A"}],
        "spec.engine.env",
        "both have name A",
    ),
    "a label with a space": (
        "spec.podTemplate.labels",
        {"team": "a b"},
        "spec.podTemplate.labels.team",
        '"a b" does not match',
    ),
    "an answer in words": ("spec.suspend", "no", "spec.suspend", '"no" is not true or false'),
    "an empty field": ("spec.accelerators", None, "spec.accelerators", "has no value"),
    "an empty value": ("spec.model.revision", None, "spec.model.revision", "has no value"),
    "a spec that is text": ("spec", "x", "spec", "must be an object"),
    "metadata that is a list": ("metadata", [], "metadata", "must be an object with a name"),
}


@pytest.mark.parametrize(("at", "value", "path", "words"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_wrong_document_is_refused_once_with_its_place_and_the_next_step(
    at: str, value: Any, path: str, words: str
) -> None:
    (problem,) = problems_of(with_value(at, value))
    assert problem.path == path
    assert words in problem.message


@pytest.mark.parametrize("missing", ["spec.model", "spec.workload", "spec.model.id", "spec.workload.images"])
def test_what_is_required_is_asked_for_with_its_description(missing: str) -> None:
    document: Any = valid_document()
    *steps, last = missing.split(".")
    inner = document
    for step in steps:
        inner = inner[step]
    del inner[last]
    (problem,) = problems_of(document)
    assert problem.path == missing
    assert problem.message.startswith(f"is required; {last} ")


def test_an_empty_document_names_everything_that_is_missing() -> None:
    assert [problem.path for problem in problems_of({})] == ["apiVersion", "kind", "metadata", "spec"]


def test_all_problems_of_a_document_are_reported_together() -> None:
    document = with_value(ONE_SIZE, {"width": 0, "height": "1"})
    document["spec"]["suspend"] = "no"
    document["kind"] = "Pod"
    assert [problem.path for problem in problems_of(document)] == [
        "kind",
        "spec.workload.images.sizes[0].width",
        "spec.workload.images.sizes[0].height",
        "spec.suspend",
    ]


def test_a_wrong_image_hides_no_other_image() -> None:
    document = with_value("spec.workload.images.sizes", [{"width": 0, "height": 1}] * 2)
    assert [problem.path for problem in problems_of(document)] == [
        "spec.workload.images.sizes[0].width",
        "spec.workload.images.sizes[1].width",
    ]
