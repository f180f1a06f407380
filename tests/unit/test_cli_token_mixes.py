"""``vlmctl tokens`` for a folder and for a list of sizes."""

import io
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pictures import bmp, gif, jpeg, photo_folder, png, tiff, webp
from tests.support.token_command import MODEL, ask, run
from vlm_operator.cli.image_sizes import read_folder, read_list
from vlm_operator.cli.main import main
from vlm_operator.cli.output import COLUMNS
from vlm_operator.cli.token_mix import figures, histogram
from vlm_operator.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return photo_folder(tmp_path / "photos")


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
