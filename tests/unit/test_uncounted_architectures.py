"""Every architecture of the engine is counted or refused by name: none is unknown, and none is both."""

import json
from typing import Any

import pytest

from tests.conformance.vectors import DATA
from tools.generate_architectures import architectures_page
from vlm_operator.sizing.shape import ARCHITECTURES, UNSIZED
from vlm_operator.sizing.tokens import BUILDERS, TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.registry import UNCOUNTED, refuse_dropped
from vlm_operator.sizing.tokens.uncounted import DROPPED, IMAGELESS, OTHER_NAMES, UNSERVABLE

ENGINE: dict[str, Any] = json.loads((DATA / "engine_architectures.json").read_text(encoding="utf-8"))


def refuse(architecture: str, model_id: str = "") -> TokenRefusal:
    refusal = bind_rule(architecture, {}, {}, model_id=model_id)
    assert isinstance(refusal, TokenRefusal)
    return refusal


@pytest.mark.parametrize("architecture", ENGINE["takes_images"])
def test_an_architecture_that_takes_images_is_counted_or_refused_by_name(architecture: str) -> None:
    if architecture in BUILDERS:
        assert architecture not in UNCOUNTED
        return
    refusal = refuse(architecture)
    assert refusal.reason in {"ArchitectureNotCounted", "ArchitectureNotServable"}
    assert refusal.message.startswith(f"{architecture}: ")
    assert "; " in refusal.message, "says what to do"


@pytest.mark.parametrize("architecture", ENGINE["takes_no_images"])
def test_an_architecture_that_takes_no_images_is_refused_as_such(architecture: str) -> None:
    refusal = refuse(architecture, "some/model")
    assert refusal.reason == "TakesNoImages"
    assert refusal.message.startswith(f"some/model ({architecture}): ")
    assert ENGINE["takes_no_images"][architecture] in refusal.message


def test_each_rule_belongs_to_an_architecture_that_the_engine_has_or_had() -> None:
    assert set(BUILDERS) - set(ENGINE["takes_images"]) <= set(DROPPED)


def test_no_reason_is_given_for_an_architecture_that_is_counted_or_has_another_reason() -> None:
    assert not set(UNCOUNTED) & (set(BUILDERS) | set(DROPPED) | set(UNSERVABLE) | set(IMAGELESS) | set(OTHER_NAMES))
    assert not set(IMAGELESS) & (set(BUILDERS) | set(DROPPED) | set(UNSERVABLE))
    assert not set(DROPPED) & (set(UNSERVABLE) | set(ENGINE["takes_images"]))


def test_molmo_is_counted_but_gets_no_plan() -> None:
    assert "MolmoForCausalLM" in BUILDERS
    refusal = refuse_dropped("MolmoForCausalLM", "allenai/Molmo-7B-D-0924")
    assert refusal is not None
    assert refusal.reason == "ArchitectureNotServable"
    assert "4.48" in refusal.message
    assert "Molmo2" in refusal.message


def test_an_architecture_that_the_engine_serves_is_not_refused() -> None:
    assert refuse_dropped("Molmo2ForConditionalGeneration") is None


@pytest.mark.parametrize(("name", "real"), OTHER_NAMES.items())
def test_another_name_leads_to_the_engines(name: str, real: str) -> None:
    assert real in refuse(name).message
    assert real in BUILDERS


@pytest.mark.parametrize(
    ("architecture", "reason", "words"),
    [
        ("NVLM_D", "ArchitectureNotCounted", ("tokenizer", "InternVL")),
        ("TransformersMultiModalForCausalLM", "ArchitectureNotCounted", ("processor", "config.json")),
        ("MllamaForConditionalGeneration", "ArchitectureDropped", ("0.10.2", "another family")),
        ("OpenPanguVLForConditionalGeneration", "ArchitectureNotServable", ("4.57", "5.16.1")),
        ("Qwen9VLForConditionalGeneration", "UnknownArchitecture", ("nearest: Qwen", "docs/reference/architectures")),
        ("Nobody", "UnknownArchitecture", ("choose a model of one of them",)),
    ],
)
def test_a_refusal_says_why_and_what_to_do(architecture: str, reason: str, words: tuple[str, ...]) -> None:
    refusal = refuse_dropped(architecture) or refuse(architecture)
    assert refusal.reason == reason
    for word in words:
        assert word in refusal.message


def test_the_reference_names_every_architecture_once() -> None:
    page = architectures_page()
    for name in {*ENGINE["takes_images"], *ENGINE["takes_no_images"], *BUILDERS, *DROPPED, *UNSERVABLE}:
        assert page.count(f"| `{name}` |") == 1 + (name in BUILDERS and name in {*DROPPED, *UNSERVABLE}), name


def test_the_reference_says_what_caps_tokens() -> None:
    page = architectures_page()
    assert "| `Qwen2VLForConditionalGeneration` | `native_grid` | `mm_processor_kwargs.max_pixels` | yes |" in page
    assert (
        "| `DeepseekV4ForConditionalGeneration` | `row_ends` | `hf_overrides.vision_max_n_token` | no: there is no rule"
        in page
    )
    assert "| `InternVLChatModel` | `tiles_internvl` | `hf_overrides.max_dynamic_patch` | yes |" in page
    assert "| `KimiK25ForConditionalGeneration` | `patch_limit` | no setting | yes |" in page


def test_the_reference_says_what_is_sized() -> None:
    rows = [line.split(" | ") for line in architectures_page().splitlines() if line.startswith("| `")]
    sized = {row[0].strip("| `"): row[3].removesuffix(" |") for row in rows if len(row) == 4}
    assert sized.keys() == BUILDERS.keys()
    assert {name for name, words in sized.items() if words == "yes"} == ARCHITECTURES.keys()
    assert sized["MllamaForConditionalGeneration"] == "no: the engine dropped it"
    assert sized["ColPaliForRetrieval"] == f"no: {UNSIZED['ColPaliForRetrieval']}"
    assert "`qwen3_vl_moe_text`" in architectures_page()
    assert "`compressed-tensors`" in architectures_page()
