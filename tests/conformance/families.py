"""Turns rows about images into bound rules, one group for each (family, server settings)."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.vectors import DATA, find_file, merge_documents, read_rows
from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.sizing.tokens import ImageRule, ServerSettings, TokenRefusal, bind_rule


@dataclass(kw_only=True)
class Group:
    """All rows of one family under one set of server settings."""

    name: str
    family: str
    architecture: str
    settings: ServerSettings
    files: dict[str, Any] = field(repr=False)
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def bind(self, settings: ServerSettings | None = None) -> ImageRule | TokenRefusal:
        if settings is None:
            settings = self.settings
        config = self.files.get("config.json") or self.files.get("params.json") or {}
        model = self.files.get("model", "")
        return bind_rule(self.architecture, config, _processor(self.files, model), settings, model)

    def shipped(self) -> ImageRule | TokenRefusal:
        return self.bind(replace(self.settings, mm_processor_kwargs={}, hf_overrides={}))


def _processor(files: dict[str, Any], model: str) -> dict[str, Any]:
    """Return the merged processor files; a family that has none here takes its values from the catalogue."""
    merged = {**files.get("processor_config.json", {}), **files.get("preprocessor_config.json", {})}
    return merged if merged or model not in model_ids() else find_model(model).processor


def read_groups(folder: Path, name: str) -> list[Group]:
    """Return the groups of the file ``name``, none where ``folder`` lacks it."""
    if find_file(folder, name) is None:
        return []
    families = merge_documents(folder, "family_configs.json")
    lengths = _read_lengths(folder)
    groups: dict[str, Group] = {}
    for row in read_rows(folder, name):
        other = row.get("other_server_args") or {}
        key = " ".join(
            [
                row["family"],
                *(json.dumps(part, sort_keys=True) for part in (row["mm_processor_kwargs"], other) if part),
            ]
        )
        if key not in groups:
            files = families.get(row["family"]) or _catalogued(row["model"])
            groups[key] = _make_group(key, row, files, lengths.get(row["family"]))
        groups[key].rows.append(_correct(row, groups[key].architecture))
    return list(groups.values())


def _catalogued(model: str) -> dict[str, Any]:
    """Return the files of a family that no folder has, as the catalogue knows them; none where it does not."""
    if model not in model_ids():
        return {}
    card = find_model(model)
    return {"model": model, "config.json": card.config, "preprocessor_config.json": card.processor}


def _correct(row: dict[str, Any], architecture: str) -> dict[str, Any]:
    """Return ``row``, a verdict that the runs got wrong set right.

    More than half of Aria's sizes raise an error once images are split, but the runs took the setting for one without
    effect, and the row of its maximum does not tell.
    """
    if architecture == "AriaForConditionalGeneration" and row["mm_processor_kwargs"].get("split_image"):
        if "verdict" in row:
            return {**row, "verdict": "start-up fails"}
        if row.get("max_tokens_image_only"):
            return {**row, "error": "images that are split fail"}
    return row


def _read_lengths(folder: Path) -> dict[str, int]:
    """Return the model length that each family was run with; only the rows of the maxima state it."""
    rows = (row for place in (DATA, folder) for row in read_rows(place, "max_tokens.jsonl"))
    return {row["family"]: row["max_model_len"] for row in rows if row.get("max_model_len")}


def _make_group(name: str, row: dict[str, Any], files: dict[str, Any], max_model_len: int | None) -> Group:
    other = row.get("other_server_args") or {}
    mistral = "params.json" in files or row["family"].endswith("_mistral_format")
    architectures = files.get("config.json", {}).get("architectures") or ["?"]
    return Group(
        name=name,
        family=row["family"],
        architecture=row.get("architecture") or ("PixtralForConditionalGeneration" if mistral else architectures[0]),
        settings=ServerSettings(
            mm_processor_kwargs=row["mm_processor_kwargs"],
            hf_overrides=other.get("hf_overrides", {}),
            config_format="mistral" if mistral else "auto",
            max_model_len=max_model_len,
        ),
        files=files,
    )


def as_parameters(groups: list[Group]) -> list[Any]:
    return [pytest.param(group, id=group.name) for group in groups]
