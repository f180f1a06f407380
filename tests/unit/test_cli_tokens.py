"""``vlmctl tokens`` for one image, and the questions about caps."""

import json
import shlex
from typing import Any

import pytest

from tests.support.token_command import MODEL, ask, run
from vlm_operator.catalogue.load import find_model
from vlm_operator.sizing.tokens import ImageTokens, ServerSettings, TokenRefusal, bind_rule

WITHOUT_CAP = "google/gemma-3-27b-it"


def settings_of(flags: str) -> ServerSettings:
    words = shlex.split(flags)
    values = {flag: json.loads(text) for flag, text in zip(words[::2], words[1::2], strict=True)}
    return ServerSettings(
        mm_processor_kwargs=values.get("--mm-processor-kwargs", {}), hf_overrides=values.get("--hf-overrides", {})
    )


# One image


def test_an_explanation_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--model", MODEL, "--image", "4032x3024", "--explain")
    assert status == 0
    for words in ("15,552 image tokens", "144 × 108", "in the prompt", "16,384", "max_pixels is 12,845,056"):
        assert words in out
    _, document = ask(capsys, "--model", MODEL, "--image", "4032x3024")
    (image,) = document["images"]
    sums = {
        embedded: sum(part["count"] * part["tokensEach"] for part in image["parts"] if part["embedded"] in embedded)
        for embedded in [(True,), (True, False)]
    }
    assert sums == {(True,): image["embedTokens"], (True, False): image["promptTokens"]}


def test_an_explanation_says_that_no_cap_works_where_none_does(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--model", WITHOUT_CAP, "--image", "4032x3024", "--explain")
    assert "none that works for this family" in out
    _, document = ask(capsys, "--model", WITHOUT_CAP, "--image", "4032x3024")
    assert "cap" not in document


def test_refused_settings_are_told_and_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", MODEL, "--processor-kwargs", '{"max_pixel": 5}']
    status, out, _ = run(capsys, *arguments, "--image", "100x100")
    assert status == 2
    assert "UnknownSetting" in out
    status, document = ask(capsys, *arguments, "--image", "100x100")
    assert (status, document["images"][0]["refused"]["reason"]) == (2, "UnknownSetting")


def test_a_refused_image_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--model", MODEL, "--image", "4000x10", "--image", "100x100")
    assert status == 1
    assert "✘ image size 4000x10" in out
    assert "16 image tokens" in out


def test_the_tile_formula_of_planning_sheets_stands_beside_the_exact_count(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--model", MODEL, "--image", "1536x1024", "--explain")
    assert "1536×1024 → 2,035 image tokens" in out
    assert "tile rule of thumb: 12 tiles of 384 pixels, 9,024 tokens, 4.4 times the truth" in out
    _, document = ask(capsys, "--model", MODEL, "--image", "4032x3024")
    assert document["images"][0]["ruleOfThumb"] == {"tileSize": 384, "patchSize": 14, "tiles": 88, "tokens": 66176}


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("4032x3024", "4032×3024 stays"),
        ("8064x6048", "→ 4116×3080, 26.0 % of its pixels"),
        ("28x28", "→ 56×56, 400.0 % of its pixels"),
    ],
)
def test_a_resize_says_what_is_left_of_the_image(size: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--model", MODEL, "--image", size, "--explain")
    assert f"resize     {words}" in out


@pytest.mark.parametrize(
    ("model", "size", "views"),
    [
        ("OpenGVLab/InternVL3-8B", "1536x1024", "7 through the vision tower, one of the whole image included"),
        ("OpenGVLab/InternVL3-8B", "100x100", "1 through the vision tower\n"),
        ("HuggingFaceM4/Idefics3-8B-Llama3", "1536x1024", "13 through the vision tower, one of the whole"),
        ("google/gemma-3-27b-it", "1536x1024", "1 through the vision tower\n"),
    ],
)
def test_a_view_of_the_whole_is_named_where_there_is_one(
    model: str, size: str, views: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "--model", model, "--image", size, "--explain")
    assert f"views      {views}" in out


def test_what_is_not_served_or_only_remembered_is_said_beside_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--model", "CohereLabs/aya-vision-8b", "--image", "1536x1024")
    words = " ".join(out.split())
    assert status == 0
    assert "the engine dropped this architecture" in words
    assert "are remembered, not read from its files" in words
    _, document = ask(capsys, "--model", "CohereLabs/aya-vision-8b", "--image", "1536x1024")
    assert len(document["notes"]) == 2
    _, out, _ = run(capsys, "--model", "OpenGVLab/InternVL3-8B", "--image", "1536x1024")
    assert "note" not in out


@pytest.mark.parametrize(
    ("overrides", "misspelt"),
    [
        ({"max_dynamic_patch": 4}, []),
        ({"max_dynamic_pach": 4}, ["max_dynamic_pach"]),
        ({"max.dynamic": {}, "max.dynamic.pach": 4}, ["max.dynamic.pach"]),
        ({"max_dynamic_patch": 4, "vision_config": {"image_sise": 448}}, ["vision_config.image_sise"]),
    ],
)
def test_an_override_that_nothing_reads_is_named(
    overrides: dict[str, Any], misspelt: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", "OpenGVLab/InternVL3-8B", "--image", "800x600", "--hf-overrides", json.dumps(overrides)]
    _, document = ask(capsys, *arguments)
    named = [note for note in document.get("notes", []) if "check its spelling" in note]
    assert [note.partition(" ")[0] for note in named] == [f"hf_overrides.{name}" for name in misspelt]


def test_settings_that_are_refused_are_refused_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        capsys, "--model", MODEL, "--processor-kwargs", '{"max_pixel": 5}', "--image", "9x9", "--image", "8x8"
    )
    assert out.count("UnknownSetting") == 1


# Caps


def test_each_cap_is_shown_with_flags_that_bring_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = ask(capsys, "--model", MODEL, "--image", "4032x3024", "--over-cap")
    assert document["caps"][0]["keptPixelsPercent"] == 100.0
    assert [step["value"] for step in document["caps"]] == sorted((s["value"] for s in document["caps"]), reverse=True)
    card = find_model(MODEL)
    for step in document["caps"]:
        rule = bind_rule(card.architecture, card.config, card.processor, settings_of(step["flags"]), MODEL)
        assert not isinstance(rule, TokenRefusal)
        answer = rule.count_image(4032, 3024)
        assert isinstance(answer, ImageTokens)
        assert answer.embed_tokens == step["embedTokens"]["max"]


@pytest.mark.parametrize(("flag", "field"), [("--min-pixels", "minPixels"), ("--min-tokens", "minTokens")])
def test_the_smallest_cap_for_a_floor_keeps_it_and_one_below_does_not(
    flag: str, field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = 1000 if flag == "--min-tokens" else 500_000
    status, document = ask(capsys, "--model", MODEL, "--image", "4032x3024", "--image", "2000x1000", flag, f"{wanted}")
    found = document["tightestCap"]
    assert (status, found["tightened"], found[field]) == (0, True, wanted)
    card = find_model(MODEL)
    rule = bind_rule(card.architecture, card.config, card.processor, settings_of(found["flags"]), MODEL)
    assert not isinstance(rule, TokenRefusal)
    assert rule.cap is not None
    below = rule.with_cap(max(value for value in rule.cap.tighter if value < found["value"]))

    def kept(bound: Any, size: tuple[int, int]) -> int:
        return int(bound.kept_pixels(*size) if flag == "--min-pixels" else bound.count_image(*size).embed_tokens)

    sizes = [(4032, 3024), (2000, 1000)]
    assert all(kept(rule, size) >= wanted for size in sizes)
    assert any(kept(below, size) < wanted for size in sizes)


def test_the_screen_of_a_floor_has_the_flags_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--model", MODEL, "--image", "4032x3024", "--min-pixels", "1,003,520")
    assert '--mm-processor-kwargs \'{"max_pixels":' in out


def test_a_floor_that_needs_all_leaves_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = ask(capsys, "--model", MODEL, "--image", "3584x3584", "--min-pixels", "99999999")
    assert (status, document["tightestCap"]["tightened"]) == (0, False)
    assert "leave it as it is" in run(capsys, "--model", MODEL, "--image", "3584x3584", "--min-pixels", "99999999")[1]


@pytest.mark.parametrize("question", [["--over-cap"], ["--min-pixels", "5"], ["--min-tokens", "5"]])
def test_no_cap_is_offered_where_none_works(question: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--model", WITHOUT_CAP, "--image", "800x600", *question)
    assert status == 1
    assert "no setting caps the images of this family" in " ".join(out.split())
    status, document = ask(capsys, "--model", WITHOUT_CAP, "--image", "800x600", *question)
    assert status == 1
    assert "scale images down" in document["noCap"]
