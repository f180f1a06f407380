"""Where ``vlmctl`` takes a model from: the catalogue, a hub, a folder; and what it says where there is none."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.hub import LocalHub, local_hub, qwen2_vl_tensors, real_files
from tests.support.operator import sample
from vlm_operator.cli.main import main

AIN = "MBZUAI/AIN"
IMAGE = ("--image", "1280x960")
AIN_TOKENS = 1564


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    with local_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = tmp_path / "ain"
    path.mkdir()
    for name, document in real_files(AIN).items():
        (path / name).write_text(json.dumps(document))
    return str(path)


def declared(tmp_path: Path, **model: Any) -> str:
    file = tmp_path / "ain.yaml"
    file.write_text(yaml.safe_dump(sample(model={"id": AIN, **model})))
    return str(file)


def test_a_model_that_only_the_hub_has_is_planned(
    hub: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sha = hub.add(AIN, real_files(AIN), qwen2_vl_tensors(real_files(AIN)["config.json"]), shards=4).sha
    assert main(["plan", "-f", declared(tmp_path)]) == 0
    assert "weights of 15.44 GiB are confirmed by the headers" in capsys.readouterr().out
    assert main(["render", "-f", declared(tmp_path)]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"--revision {sha}" in " ".join(container["args"])


def test_a_model_that_nobody_has_is_wrong_input(
    hub: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hub.models == {}
    assert main(["plan", "-f", declared(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "spec.model.id" in err
    assert "not in the catalogue" in err
    assert "private or does not exist" in err


@pytest.mark.parametrize(("source", "status"), [({}, 2), ({"source": "Hub"}, 3)])
def test_a_hub_that_does_not_answer_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: dict[str, str], status: int
) -> None:
    assert main(["plan", "-f", declared(tmp_path, **source)]) == status
    assert "the model hub http://127.0.0.1:9 cannot be reached" in capsys.readouterr().err


def test_the_catalogue_alone_is_asked_where_it_is_named(
    hub: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-f", declared(tmp_path, source="Catalogue")]) == 2
    assert "not in the catalogue" in capsys.readouterr().err
    assert hub.requests == []


def test_a_config_map_is_on_the_cluster_or_its_files_are_in_a_folder(
    tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = declared(tmp_path, source="ConfigMap", configMapName="ain")
    assert main(["plan", "-f", file]) == 2
    assert "--model-dir" in capsys.readouterr().err
    assert main(["plan", "-f", file, "--model-dir", folder]) == 0
    assert f"--model-dir {folder}" in " ".join(capsys.readouterr().out.split())


def test_tokens_of_a_model_of_the_hub(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add(AIN, real_files(AIN), qwen2_vl_tensors(real_files(AIN)["config.json"]), token="hf_right")  # noqa: S106 - no secret
    asked = ["tokens", "--model", AIN, "--source", "hub", *IMAGE]
    assert main(asked) == 2
    assert "HF_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert main([*asked, "--output", "json"]) == 0
    assert f'"embedTokens": {AIN_TOKENS}' in capsys.readouterr().out


def test_tokens_of_a_folder(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "--model-dir", folder, *IMAGE, "--output", "json"]) == 0
    assert f'"embedTokens": {AIN_TOKENS}' in capsys.readouterr().out


def test_a_file_of_requests_can_be_about_models_of_the_hub(
    hub: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add(AIN, real_files(AIN), qwen2_vl_tensors(real_files(AIN)["config.json"]))
    requests = tmp_path / "requests.jsonl"
    lines = [{"model": model, "width": 1280, "height": 960} for model in (AIN, AIN, "nobody/nothing")]
    requests.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["tokens", "--requests", str(requests), "--source", "hub"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == second
    assert first["embed_tokens"] == AIN_TOKENS
    assert third["error"]["reason"] == "UnknownModel"


def test_memory_of_a_folder(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--model-dir", folder, "--gpu", "h100-80gb-sxm", "--max-model-len", "8192"]) == 0
    assert "weights" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "{"])
def test_a_folder_without_a_model_is_wrong_input(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert main(["tokens", "--model-dir", str(tmp_path), *IMAGE]) == 2
    assert "config.json" in capsys.readouterr().err


def test_no_command_about_the_catalogue_loads_the_hubs_library() -> None:
    code = (
        "import sys; from vlm_operator.cli.main import main;"
        f"main(['tokens', '--model', 'Qwen/Qwen2.5-VL-3B-Instruct', *{IMAGE!r}]);"
        "sys.exit('huggingface_hub' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
