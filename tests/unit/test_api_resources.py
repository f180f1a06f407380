"""A valid VLMDeployment becomes a resource; YAML text keeps its lines."""

import contextlib
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_api_refusals import REFUSALS, valid_document, with_value
from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.api.validate import load_resources, parse_resource
from vlm_operator.errors import InputError, Problem

SAMPLES = sorted((Path(__file__).parents[2] / "manifests/samples").glob("*.yaml"))
VALID = """\
apiVersion: vlm-operator.dev/v1alpha1
kind: VLMDeployment
metadata:
  name: invoices
spec:
  model:
    id: a/b
  workload:
    images:
      sizes:
        - {width: 10, height: 20}
"""


def problems_in(text: str) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        load_resources(text, "file.yaml")
    return list(caught.value.problems)


def test_the_smallest_document_gets_the_documented_defaults() -> None:
    spec = parse_resource(valid_document()).spec
    assert [(entry.count, entry.weight) for entry in spec.workload.images.per_request] == [(1, 1)]
    assert (spec.workload.text.prompt_tokens.p50, spec.workload.text.prompt_tokens.p99) == (300, 900)
    assert (spec.workload.output.tokens.p50, spec.workload.output.tokens.max) == (150, 500)
    assert spec.workload.traffic.concurrent_requests == 1
    assert spec.accelerators.inventory is None
    assert not spec.suspend


def test_identity_and_labels_come_from_the_metadata() -> None:
    document = valid_document()
    document["metadata"] |= {"namespace": "shop", "uid": "u", "generation": 3, "labels": {"team": "a"}}
    resource = parse_resource(document)
    assert (resource.name, resource.namespace, resource.uid) == ("invoices", "shop", "u")
    assert (resource.generation, resource.labels) == (3, {"team": "a"})


def test_a_status_and_mappings_that_are_no_dicts_are_taken() -> None:
    document = valid_document()
    document["status"] = {"anything": 1}
    document["spec"] = UserDict(document["spec"])
    assert parse_resource(document).spec == parse_resource(valid_document()).spec


def test_the_largest_image_that_the_engine_decodes_is_taken() -> None:
    document = valid_document()
    document["spec"]["workload"]["images"]["sizes"] = [{"width": 13377, "height": 13377}]
    assert parse_resource(document).spec.workload.images.sizes[0].width == 13377


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_one_resource_named_like_its_file(sample: Path) -> None:
    (resource,) = load_resources(sample.read_text(encoding="utf-8"), sample.name)
    assert resource.name == sample.stem


def test_a_spec_survives_being_written_and_read() -> None:
    spec = load_resources(VALID, "file.yaml")[0].spec
    assert VLMDeploymentSpec.model_validate_json(spec.model_dump_json(by_alias=True)) == spec


def test_several_documents_are_several_resources_and_empty_ones_are_skipped() -> None:
    text = f"---\n{VALID}---\n---\n# a comment\n---\n{VALID.replace('invoices', 'frames')}"
    assert [resource.name for resource in load_resources(text, "file.yaml")] == ["invoices", "frames"]


def test_problems_of_every_document_carry_their_lines() -> None:
    text = VALID.replace("width: 10", "width: 0") + "---\n" + VALID.replace("id: a/b", "idd: a/b")
    assert [(problem.line, problem.path) for problem in problems_in(text)] == [
        (11, "spec.workload.images.sizes[0].width"),
        (18, "spec.model.id"),
        (19, "spec.model.idd"),
    ]


def test_a_revision_that_looks_like_a_date_stays_text() -> None:
    text = VALID.replace("id: a/b", "id: a/b\n    revision: 2024-01-31")
    assert load_resources(text, "file.yaml")[0].spec.model.revision == "2024-01-31"


REFUSED_TEXTS = {
    "an empty file": ("", None, "file.yaml is empty"),
    "a file of comments": ("# nothing\n", None, "file.yaml is empty"),
    "plain text": ("hello\n", 1, "holds plain text where a VLMDeployment"),
    "a list": ("- a\n", 1, "holds a list where"),
    "an open bracket": ("a: [1,\nb: 2\n", 3, "file.yaml is not YAML"),
    "a tab for indentation": ("a:\n\tb: 1\n", 2, "file.yaml is not YAML"),
    "a control character": ("a: \x00\n", None, "file.yaml is not YAML"),
    "a field twice": (VALID + "kind: Pod\n", 12, "kind appears twice, first in line 2; keep one"),
    "a tag that runs code": ("a: !!python/object/apply:os.system [ls]\n", 1, "must be an object"),
    "an unknown scalar tag": ("a: !ruby x\n", 1, "file.yaml is not YAML"),
    "an alias to nowhere": ("a: *b\n", 1, "file.yaml is not YAML"),
    "an alias to itself": ("a: &a [*a]\n", 1, "too many or too deeply nested"),
    "a million laughs": (
        "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10) if n else 'x'}]\n" for n in range(9)),
        1,
        "too many or too deeply nested",
    ),
    "a thousand brackets": ("[" * 5000, None, "nested too deeply"),
    "a bad date tag": ("a: !!int x\n", 1, "file.yaml is not YAML"),
    "a field that is a list": ("? [a]\n: 1\n", 1, "a field's name must be text"),
}


@pytest.mark.parametrize(("text", "line", "words"), REFUSED_TEXTS.values(), ids=REFUSED_TEXTS.keys())
def test_text_that_is_no_resource_is_refused_with_its_line(text: str, line: int | None, words: str) -> None:
    problems = problems_in(text)
    assert any(words in problem.message for problem in problems), problems
    assert line is None or line in {problem.line for problem in problems}


@pytest.mark.parametrize("value", ["!!binary aGk=", ".nan", ".inf", '"\\ud800"', "9" * 500, "!!set {a, b}", "~"])
def test_values_that_json_does_not_know_are_refused_at_their_line(value: str) -> None:
    for field in ("width: 10", "id: a/b"):
        name = field.split(":", maxsplit=1)[0]
        problems = problems_in(VALID.replace(field, f"{name}: {value}"))
        assert all(problem.line for problem in problems)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(at=st.sampled_from(sorted({at for at, *_ in REFUSALS.values()})), value=JSON)
def test_any_value_anywhere_is_taken_or_refused(at: str, value: Any) -> None:
    with contextlib.suppress(InputError):
        parse_resource(with_value(at, value))


@given(st.text(alphabet="ab:-[]{}&*!? \n\t\"'#|>%@0.~,", max_size=40))
def test_any_text_is_taken_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        load_resources(text, "file.yaml")


@pytest.mark.parametrize("field", ["labels", "annotations", "nodeSelector"])
def test_a_key_that_no_label_can_have_is_refused_where_it_stands(field: str) -> None:
    document = with_value("spec.podTemplate", {field: {"bad key!": "x"}})
    with pytest.raises(InputError, match=rf"spec\.podTemplate\.{field}.*bad key!.*not a key"):
        parse_resource(document)
