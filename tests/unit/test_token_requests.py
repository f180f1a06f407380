"""Bulk token requests: one answer a line, in order, whatever the line."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from vlm_operator.catalogue.types import ModelCard, Provenance
from vlm_operator.cli.tokens import answer_requests
from vlm_operator.errors import CatalogueError

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
PROVENANCE = Provenance(source=("test",), certainty="real-file")


class Catalogue:
    """Knows one model and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def find(self, model_id: str) -> ModelCard:
        self.asked += 1
        if model_id != MODEL:
            raise CatalogueError(f"model {model_id!r} is not in the catalogue")
        return ModelCard(
            id=MODEL,
            architecture="Qwen2_5_VLForConditionalGeneration",
            config={"vision_config": {"patch_size": 14, "spatial_merge_size": 2}},
            config_provenance=PROVENANCE,
            processor={"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2},
            processor_provenance=PROVENANCE,
            parameters=None,
            parameters_provenance=None,
            dtype="bfloat16",
            served=True,
        )


def ask(*lines: str, find: Callable[[str], ModelCard] | None = None) -> list[dict[str, Any]]:
    return [json.loads(answer) for answer in answer_requests(lines, find or Catalogue().find)]


def request(**fields: Any) -> str:
    return json.dumps({"model": MODEL, "width": 1024, "height": 1024, **fields})


def test_answers_one_image() -> None:
    assert ask(request()) == [
        {
            "embed_tokens": 1369,
            "placeholder_length": 1369,
            "prompt_tokens": 1371,
            "vit_patches": 5476,
            "resized": [1036, 1036],
        }
    ]


def test_settings_of_the_request_count() -> None:
    capped, shipped = ask(
        request(width=4032, height=3024, mm_processor_kwargs={"max_pixels": 1003520}),
        request(width=4032, height=3024, other_server_args={"limit_mm_per_prompt": {"video": 0}}),
    )
    assert (capped["embed_tokens"], shipped["embed_tokens"]) == (1230, 15552)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "BadRequest"),
        ("{", "BadRequest"),
        ("[1]", "BadRequest"),
        ("[" * 100_000, "BadRequest"),
        ("9" * 5000, "BadRequest"),
        (request(width=1.5), "BadRequest"),
        (request(width=True), "BadRequest"),
        (request(height=None), "BadRequest"),
        (request(model=3), "BadRequest"),
        (request(hight=3), "BadRequest"),
        (request(mm_processor_kwargs=[1]), "BadRequest"),
        (request(other_server_args={"tensor_parallel_size": 2}), "BadRequest"),
        (request(other_server_args={"config_format": "gguf"}), "BadRequest"),
        (request(other_server_args={"config_format": "mistral"}), "UnsupportedConfigFormat"),
        (request(other_server_args={"limit_mm_per_prompt": {"image": 0}}), "ImagesSwitchedOff"),
        (request(model="nobody/nothing"), "UnknownModel"),
        (request(width=0), "InvalidImageSize"),
        (request(width=10**30), "ImageTooLarge"),
        (request(width=10**4000, height=10**4000), "ImageTooLarge"),
        (request(mm_processor_kwargs={"max_pixels": 10**50}), "InvalidSetting"),
        (request(width=4000, height=19), "AspectRatioTooExtreme"),
        (request(mm_processor_kwargs={"size": {"longest_edge": 1003520}}), "StartupFails"),
        (request(mm_processor_kwargs={"max_pixel": 1003520}), "UnknownSetting"),
        (request(mm_processor_kwargs={"max_pixels": "many"}), "InvalidSetting"),
        (
            request(other_server_args={"hf_overrides": {"vision_config": {"patch_size": 16}}}),
            "SettingMismatch",
        ),
    ],
)
def test_a_bad_line_gets_an_error_and_the_next_its_answer(line: str, reason: str) -> None:
    bad, good = ask(line, request())
    assert bad["error"]["reason"] == reason
    assert bad["error"]["message"]
    assert good["embed_tokens"] == 1369


def test_a_rule_is_bound_once_for_each_setting() -> None:
    catalogue = Catalogue()
    lines = [
        request(width=width, mm_processor_kwargs=kwargs)
        for width in range(1, 50)
        for kwargs in ({}, {"min_pixels": 50176})
    ]
    assert len(ask(*lines, find=catalogue.find)) == len(lines)
    assert catalogue.asked == 2
