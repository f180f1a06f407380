"""What the conformance suite makes of a folder of rows that is not the repository's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.families import Group, read_groups
from tests.conformance.test_image_tokens import test_image_tokens as check_tokens

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN = "Qwen2_5_VLForConditionalGeneration"
COUNTED = {"embed_tokens": 1369, "placeholder_length": 1369, "prompt_tokens": 1371}


def write(folder: Path, *rows: dict[str, Any], families: dict[str, Any] | None = None) -> Group:
    """Write rows of one image of 1024 x 1024 pixels, and return the only group that is read of them."""
    common = {"model": MODEL, "architecture": QWEN, "family": "qwen2_5_vl", "mm_processor_kwargs": {}}
    lines = [json.dumps({**common, "width": 1024, "height": 1024, **COUNTED, **row}) for row in rows]
    (folder / "image_tokens.jsonl").write_text("\n".join(lines))
    if families is not None:
        (folder / "family_configs.json").write_text(json.dumps(families))
    (group,) = read_groups(folder, "image_tokens.jsonl")
    return group


def test_rows_of_a_known_family_need_no_configuration(tmp_path: Path) -> None:
    check_tokens(write(tmp_path, {}, families={}))


def test_a_family_by_another_name_is_looked_up_by_its_model(tmp_path: Path) -> None:
    check_tokens(write(tmp_path, {"family": "somebody's"}))


def test_a_folder_brings_families_of_its_own(tmp_path: Path) -> None:
    files = {
        "model": "some/fine-tune",
        "config.json": {"vision_config": {"patch_size": 14, "spatial_merge_size": 2}},
        "preprocessor_config.json": {"min_pixels": 3136, "max_pixels": 200704, "patch_size": 14, "merge_size": 2},
    }
    row = {"model": "some/fine-tune", "family": "new", "embed_tokens": 256, "placeholder_length": 256}
    check_tokens(write(tmp_path, {**row, "prompt_tokens": 258}, families={"new": files}))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"embed_tokens": 1370}, "embed_tokens 1369 instead of 1370"),
        ({"resized": [1008, 1008]}, "resized"),
        ({"error": "ValueError: absolute aspect ratio must be smaller than 200"}, "counted, but ValueError"),
        ({"placeholder_mismatch": True}, "counted, but mismatch"),
        ({"width": None, "height": None, "error": "TypeError"}, "start-up fails"),
        ({"architecture": "NobodysVLForConditionalGeneration"}, "no counting rule"),
        ({"family": "new", "model": "some/fine-tune"}, "lacks"),
        ({"width": 4000, "height": 19}, "aspect ratio"),
        ({"mm_processor_kwargs": {"max_pixel": 1}}, "max_pixel"),
    ],
)
def test_what_differs_from_a_row_fails(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=words):
        check_tokens(write(tmp_path, row))


def test_a_setting_that_is_refused_for_one_thin_image_fails(tmp_path: Path) -> None:
    row = {"mm_processor_kwargs": {"size": {"longest_edge": 1003520}}}
    thin = {**row, "width": 4000, "height": 19, "error": "ValueError: absolute aspect ratio must be smaller than 200"}
    with pytest.raises(AssertionError, match="lacks shortest_edge"):
        check_tokens(write(tmp_path, row, thin))


def test_rows_of_an_architecture_that_is_refused_by_name_are_skipped_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="tokenizer"):
        check_tokens(write(tmp_path, {"architecture": "NVLM_D"}))
