"""``vlmctl tokens`` for one image, a folder, a list, and the questions about caps."""

import io
import json
import os
import shlex
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vlm_operator.catalogue.load import find_model
from vlm_operator.cli.image_sizes import read_folder, read_list
from vlm_operator.cli.main import main
from vlm_operator.cli.output import COLUMNS
from vlm_operator.cli.token_mix import figures, histogram
from vlm_operator.errors import InputError
from vlm_operator.sizing.tokens import ImageTokens, ServerSettings, TokenRefusal, bind_rule

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
WITHOUT_CAP = "google/gemma-3-27b-it"


def png(width: int, height: int, *, orientation: int = 1) -> bytes:
    chunks = [(b"IHDR", struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 0)), (b"eXIf", exif(orientation))]
    body = b"".join(struct.pack(">L", len(data)) + name + data + b"\0\0\0\0" for name, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg(width: int, height: int, *, orientation: int = 1) -> bytes:
    payload = b"Exif\0\0" + exif(orientation)
    app1 = b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\1\x22\0\2\x11\1\3\x11\1"
    return b"\xff\xd8" + app1 + frame + b"\xff\xda"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(16) + struct.pack("<ll", width, height) + bytes(10)


def webp(width: int, height: int, *, orientation: int = 1) -> bytes:
    payload = exif(orientation)
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunks = b"VP8X" + struct.pack("<L", 10) + b"\x08\0\0\0" + sides + b"EXIF" + struct.pack("<L", len(payload))
    return b"RIFF" + struct.pack("<L", len(chunks) + len(payload) + 4) + b"WEBP" + chunks + payload


def tiff(width: int, height: int, *, orientation: int = 1) -> bytes:
    entries = [(256, 4, width), (257, 4, height), (274, 3, orientation)]
    return b"II*\0\x08\0\0\0" + struct.pack("<H", 3) + b"".join(struct.pack("<HHLL", t, k, 1, v) for t, k, v in entries)


def exif(orientation: int) -> bytes:
    return b"MM\0*\0\0\0\x08" + struct.pack(">HHHLHH", 1, 0x0112, 3, 1, orientation, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five readable images, one of them turned and one below, two broken ones, and what is no image."""
    root = tmp_path / "photos"
    (root / "below").mkdir(parents=True)
    files = {
        "a.png": png(4032, 3024), "b.JPG": jpeg(640, 200, orientation=6), "c.webp": webp(800, 600),
        "d.gif": gif(100, 50), "below/e.bmp": bmp(1000, 700), "broken.jpg": b"no image", "empty.png": b"",
        "notes.txt": b"text", ".hidden.png": png(1, 1),
    }  # fmt: skip
    for name, content in files.items():
        (root / name).write_bytes(content)
    return root


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["tokens", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status, out, _ = run(capsys, *arguments, "-o", "json")
    return status, json.loads(out)


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


# Many images


def test_a_folder_is_counted_from_headers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = ask(capsys, "--model", MODEL, "--images", str(folder))
    assert status == 1
    assert document["imagesCounted"] == 5
    assert document["embedTokens"]["max"] == 15552
    assert sum(each["images"] for each in document["histogram"]) == 5
    assert document["otherFiles"] == 1
    assert sorted(text.split(":")[0] for text in document["unreadable"]) == ["broken.jpg", "empty.png"]


def test_the_screen_of_a_folder_names_what_is_broken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--model", MODEL, "--images", str(folder), "--explain", "--over-cap")
    assert status == 1
    for words in ("5 images in", "p99", "✘ broken.jpg", "✘ empty.png", "1 other file", "the largest: 4032×3024"):
        assert words in out
    assert max(map(len, out.splitlines()[1:])) <= COLUMNS


def test_a_folder_without_a_broken_image_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_bytes(png(100, 100))
    assert run(capsys, "--model", MODEL, "--images", str(tmp_path))[0] == 0


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("name", "make"), [("a.png", png), ("a.jpg", jpeg), ("a.webp", webp), ("a.tif", tiff)])
def test_a_turned_image_has_its_sides_swapped(name: str, make: Any, orientation: int, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(make(640, 200, orientation=orientation))
    assert read_folder(str(tmp_path)).counts == {(200, 640) if orientation >= 5 else (640, 200): 1}


@given(st.sampled_from([png, jpeg, webp, tiff, gif, bmp]), st.integers(0, 100), st.binary(max_size=20))
def test_a_damaged_file_never_stops_the_others(make: Any, cut: int, tail: bytes) -> None:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - a fixture would be shared by all examples

    with TemporaryDirectory() as root:
        Path(root, "a.png").write_bytes(make(640, 200)[:cut] + tail)
        Path(root, "b.png").write_bytes(png(10, 10))
        sizes = read_folder(root)
    assert sum(sizes.counts.values()) + len(sizes.unreadable) == 2
    assert sizes.counts[10, 10] >= 1


@pytest.mark.parametrize("name", ["photo.HEIC", "photo.heif", "photo.avif", "drawing.svg", "scan.jp2", "scan.jxl"])
def test_an_image_of_a_format_that_is_not_read_is_named(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"....ftypheic")
    (text,) = [text for text in read_folder(str(folder)).unreadable if text.startswith(name)]
    assert "is not read; convert it" in text


def test_a_name_that_is_not_utf_8_can_be_told_from_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.png")).open("wb") as file:
        file.write(b"no image")
    _, document = ask(capsys, "--model", MODEL, "--images", str(folder))
    assert any(text.startswith("bad\\xff.png: ") for text in document["unreadable"])


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_stream_with_a_small_alphabet_loses_nothing_of_a_document(
    form: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "é.png").write_bytes(b"no image")
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    assert main(["tokens", "--model", MODEL, "--images", str(folder), "-o", form]) == 1
    text = stream.buffer.getvalue().decode("ascii")
    assert any(name.startswith("é.png: ") for name in yaml.safe_load(text)["unreadable"])


def test_a_pipe_among_the_files_is_passed_over(folder: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    assert read_folder(str(folder)).skipped == 2


def test_a_link_to_nothing_is_named(folder: Path) -> None:
    (folder / "link.png").symlink_to(folder / "none.png")
    assert "link.png: cannot be read: No such file or directory" in read_folder(str(folder)).unreadable


def test_a_link_to_a_folder_is_named_since_its_images_are_not_counted(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    sizes = read_folder(str(folder))
    assert "loop: a link to a folder is not followed" in sizes.unreadable
    assert sum(sizes.counts.values()) == 5


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4032x3024\n800×600\n4032x3024\n", {(4032, 3024): 2, (800, 600): 1}),
        ("4032x3024 12\n", {(4032, 3024): 12}),
        ("4032,3024,5\n800;600\n\n# comment\n", {(4032, 3024): 5, (800, 600): 1}),
        ("\ufeffcount,Height,Width\n7,600,800\n", {(800, 600): 7}),
        ('file;width;height\r\na photo.png;800;600\r\n"one; two.png";4032;3024\r\n', {(800, 600): 1, (4032, 3024): 1}),
        ("file\twidth\theight\na b.png\t800\t600\n", {(800, 600): 1}),
        ("width height\n800 600\n", {(800, 600): 1}),
        (
            '{"width": 800, "height": 600, "weight": 3, "url": "x"}\n{"width": 1, "height": 2}\n',
            {(800, 600): 3, (1, 2): 1},
        ),
    ],
)  # fmt: skip
def test_a_list_is_read_in_each_of_its_forms(text: str, counts: dict[tuple[int, int], int], tmp_path: Path) -> None:
    file = tmp_path / "sizes"
    file.write_text(text)
    sizes = read_list(str(file))
    assert (sizes.counts, sizes.unreadable) == (counts, ())


@pytest.mark.parametrize(
    "line",
    ["5", "0x5", "5,", "5,6,0", "5x6 a", "{", "[1]", '{"width": 5}', '{"width": 5.5, "height": 6}', "\udcff", "5,-6",
     '{"width": true, "height": 6}', "99999999999999,5"],
)  # fmt: skip
def test_a_broken_line_is_named_and_stops_no_other(line: str, tmp_path: Path) -> None:
    file = tmp_path / "sizes"
    file.write_bytes(f"800x600\n{line}\n".encode(errors="surrogateescape"))
    sizes = read_list(str(file))
    assert sizes.counts == {(800, 600): 1}
    assert [text.split(":")[0] for text in sizes.unreadable] == ["line 2"]


@pytest.mark.parametrize("cell", ["a\rb", "x" * 200_000, '"open', ""])
def test_a_broken_cell_of_a_table_stops_no_other_line(cell: str, tmp_path: Path) -> None:
    file = tmp_path / "sizes.csv"
    file.write_bytes(f"name,width,height\n{cell},1,x\nb,800,600\n".encode())
    sizes = read_list(str(file))
    assert sizes.counts == {(800, 600): 1}
    assert all(text.startswith("line ") for text in sizes.unreadable)
    assert sizes.unreadable


def test_a_list_comes_through_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"800x600 3\nnonsense here\n")))
    status, document = ask(capsys, "--model", MODEL, "--sizes", "-")
    assert (status, document["imagesCounted"], document["source"]) == (1, 3, "standard input")
    assert document["unreadable"][0].startswith("line 2")


def test_refused_sizes_are_listed_with_their_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sizes"
    file.write_text("800x600\n4000x10 4\n")
    status, document = ask(capsys, "--model", MODEL, "--sizes", str(file))
    assert status == 1
    assert [(each["width"], each["images"]) for each in document["refused"]] == [(4000, 4)]
    assert "4 images refused" in run(capsys, "--model", MODEL, "--sizes", str(file))[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", MODEL, "--images", "{folder}/none"], "no such folder"),
        (["--model", MODEL, "--images", "{folder}/file"], "is a file"),
        (["--model", MODEL, "--images", "{folder}"], "no image in it (1 other files)"),
        (["--model", MODEL, "--sizes", "{folder}/file"], "no size in it"),
        (["--model", MODEL, "--sizes", "{folder}/none"], "no such file"),
        (["--model", MODEL, "--sizes", "-", "--image", "5x5"], "keep one of them"),
        (["--model", MODEL], "--images DIR"),
        (["--images", "{folder}"], "--model ID"),
        (["--requests", "-", "--images", "{folder}"], "--requests"),
    ],
)
def test_wrong_usage_says_what_to_write_and_exits_with_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("\n")
    status, out, err = run(capsys, *(argument.format(folder=tmp_path) for argument in arguments))
    assert (status, out) == (2, "")
    assert words in err


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "many"])
def test_a_floor_is_a_whole_number_above_0(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tokens", "--model", MODEL, "--image", "5x5", f"--min-pixels={value}"])
    assert ended.value.code == 2
    assert "whole number" in capsys.readouterr().err


def test_yaml_says_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", MODEL, "--images", str(folder), "--over-cap", "--min-pixels", "100000"]
    _, document = ask(capsys, *arguments)
    _, out, _ = run(capsys, *arguments, "-o", "yaml")
    assert yaml.safe_load(out) == document


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


# Percentiles and histograms

DISTRIBUTIONS = st.dictionaries(st.integers(1, 50_000), st.integers(1, 1000), min_size=1, max_size=60)


@given(DISTRIBUTIONS)
def test_percentiles_are_those_of_the_sorted_images(distribution: dict[int, int]) -> None:
    everyone = sorted(value for value, number in distribution.items() for _ in range(number))
    found = figures(distribution)
    assert list(found) == ["p50", "p90", "p99", "max"]
    for percent in (50, 90, 99):
        assert found[f"p{percent}"] == everyone[-(-len(everyone) * percent // 100) - 1]
    assert found["max"] == everyone[-1]


@given(DISTRIBUTIONS)
def test_a_histogram_has_every_image_once_in_few_bins(distribution: dict[int, int]) -> None:
    bins = histogram(distribution)
    assert len(bins) <= 12
    assert all(before.high < after.low for before, after in pairwise(bins))
    for each in bins:
        assert each.images == sum(number for value, number in distribution.items() if each.low <= value <= each.high)
    assert sum(each.images for each in bins) == sum(distribution.values())


def test_a_folder_that_is_none_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_folder(str(tmp_path / "none"))
