"""The command line: what comes out on stdout, what on stderr, and the exit status."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import vlm_operator
from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.cli.inventory_file import parse_inventory
from vlm_operator.cli.main import main
from vlm_operator.cli.output import COLUMNS
from vlm_operator.sizing.inventory import Resources
from vlm_operator.units import GIB

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(vlm_operator.__file__).parents[1])}
MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"


def a_document(name: str = "invoices", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "vlm-operator.dev/v1alpha1",
        "kind": "VLMDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "model": {"id": MODEL},
            "workload": {
                "images": {"sizes": [{"width": 1654, "height": 2339}]},
                "traffic": {"requestsPerMinute": 60},
            },
            **spec,
        },
    }


def write(folder: Path, *documents: Any) -> str:
    file = folder / "invoices.yaml"
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    return str(file)


def test_a_plan_answers_on_stdout_and_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", write(tmp_path, a_document())]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "✔" in out
    assert "Next: vlmctl render -f" in out
    assert max(len(line) for line in out.splitlines() if "/" not in line) <= COLUMNS


def test_a_plan_as_json_has_plan_estimate_and_alternatives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", write(tmp_path, a_document()), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"plan", "estimate", "alternatives"} <= set(document)


def test_yaml_says_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, a_document())
    main(["plan", "-f", file, "--output", "json"])
    as_json = json.loads(capsys.readouterr().out)
    main(["plan", "-f", file, "--output", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_the_same_file_gives_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, a_document())
    main(["plan", "-f", file])
    first = capsys.readouterr().out
    main(["plan", "-f", file])
    assert capsys.readouterr().out == first


def test_several_objects_get_one_answer_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, a_document("one"), a_document("two"))
    assert main(["plan", "-f", file, "-o", "json"]) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)["items"]] == ["one", "two"]


def test_what_does_not_fit_exits_with_1_and_says_what_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, a_document(accelerators={"maxHourlyCostCents": 1}))
    assert main(["plan", "-f", file]) == 1
    assert "✘ invoices" in capsys.readouterr().out
    assert main(["plan", "-f", file, "-o", "json"]) == 1
    assert "noFit" in json.loads(capsys.readouterr().out)


def test_nothing_is_rendered_if_one_object_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, a_document("one"), a_document("two", accelerators={"maxHourlyCostCents": 1}))
    assert main(["render", "-f", file]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "two" in err


def test_render_prints_manifests_that_parse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", write(tmp_path, a_document())]) == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)]
    assert {"Deployment", "Service"} <= set(kinds)


def test_a_file_can_come_through_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(a_document())))
    assert main(["plan", "-f", "-"]) == 0
    assert "invoices" in capsys.readouterr().out


def test_every_problem_of_a_file_is_told_with_its_line_and_none_is_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = a_document(objectivs={})
    document["spec"]["workload"]["images"]["sizes"][0]["width"] = 0
    file = write(tmp_path, document)
    assert main(["plan", "-f", file]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert any("width" in line and line.startswith(f"{file}:") for line in lines)
    assert any("objectivs" in line for line in lines)
    assert lines[-1] == f"2 problems in {file}; nothing was applied."


def test_an_unknown_model_names_the_nearest_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, a_document(model={"id": "Qwen/Qwen2.5-VL-7B"}))
    assert main(["plan", "-f", file]) == 2
    err = capsys.readouterr().err
    assert "spec.model.id" in err
    assert MODEL in err


def test_an_unknown_gpu_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, a_document(accelerators={"allowed": ["NVIDIA-H100-80GB-HBM4"]}))
    assert main(["plan", "-f", file]) == 2
    err = capsys.readouterr().err
    assert "accelerators.allowed[0]" in err
    assert "NVIDIA-H100-80GB-HBM3" in err


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"---\n",
        b"just words",
        b"- a\n- list",
        b"a: [1",
        b"\xff\xfe\x00",
        b"a: &x [*x]",
        b"kind: Pod\napiVersion: v1",
        b"{apiVersion: vlm-operator.dev/v1alpha1, kind: VLMDeployment}",
        b"\tname: tab",
        b"a: \x07",
    ],
)
def test_a_file_that_is_no_object_gets_a_message_and_2(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_bytes(content)
    assert main(["plan", "-f", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip()
    assert "Traceback" not in err


def test_an_image_of_50000_by_50000_is_refused_with_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = a_document()
    document["spec"]["workload"]["images"]["sizes"] = [{"width": 50_000, "height": 50_000}]
    assert main(["plan", "-f", write(tmp_path, document)]) == 2
    assert "178956970" in capsys.readouterr().err.replace(",", "")


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", str(tmp_path / "none.yaml")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["plan", "-f", str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokens", "--model", MODEL, "--image", "12"],
        ["tokens", "--model", MODEL, "--image", "0x5"],
        ["tokens", "--model", MODEL, "--image", "-1x5"],
        ["tokens", "--model", MODEL, "--image", "5x5", "--processor-kwargs", "{"],
        ["tokens", "--model", MODEL, "--image", "5x5", "--hf-overrides", "[1]"],
        ["plan"],
        ["nothing"],
        [],
    ],
)
def test_wrong_arguments_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_tokens_of_an_image_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "--model", MODEL, "--image", "4032x3024"]) == 0
    assert "15,552 image tokens" in capsys.readouterr().out


def test_a_cap_reaches_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    cap = '{"max_pixels": 1003520}'
    arguments = ["tokens", "--model", MODEL, "--image", "4032x3024", "--processor-kwargs", cap, "-o", "json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["images"][0]["embedTokens"] <= 1280


def test_a_typing_error_in_a_model_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "--model", "Qwen/Qwen2.5-VL-7B", "--image", "10x10"]) == 2
    assert MODEL in capsys.readouterr().err


def test_tokens_without_a_question_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens"]) == 2
    assert "--requests" in capsys.readouterr().err


def test_the_catalogue_says_what_is_not_planned_and_what_is_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    main(["catalogue", "models"])
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines() if "/" in row.partition(" ")[0]}
    assert "until 0.10.2" in rows["meta-llama/Llama-3.2-11B-Vision-Instruct"]
    assert "does not start" in rows["allenai/Molmo-7B-D-0924"]
    assert " yes " in rows["allenai/Molmo2-8B"]
    remembered = {card.id for card in map(find_model, model_ids()) if card.remembered_fields}
    assert remembered <= {name for name, row in rows.items() if row.endswith(" *")} < rows.keys()
    main(["catalogue", "models", "-o", "json"])
    items = {item["id"]: item["notPlanned"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert "4.48" in items["allenai/Molmo-7B-D-0924"]
    assert items["allenai/Molmo2-8B"] is None


@pytest.mark.parametrize("what", ["models", "gpus"])
def test_the_catalogue_lists_every_entry_with_its_certainty(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert main(["catalogue", what, "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == len(lines) - 3


def test_the_crd_is_printed_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "CustomResourceDefinition"


def test_an_inventory_file_limits_the_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = tmp_path / "gpus.yaml"
    inventory.write_text("- {gpu: NVIDIA-L40S, gpusPerNode: 4, nodes: 2, hourlyCents: 50}\n")
    file = write(tmp_path, a_document())
    assert main(["plan", "-f", file, "--inventory", str(inventory), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "L40S" in document["plan"]["accelerator"]
    assert document["estimate"]["hourlyCostCents"] % 50 == 0


def test_an_inventory_file_limits_cores_and_memory_where_it_tells_them() -> None:
    small = "- {gpu: l40s, gpusPerNode: 4, nodes: 2, cpuCores: 16, memoryGiB: 64}\n"
    large = "- {gpu: l40s, gpusPerNode: 8, nodes: 1}\n- {gpu: l40s, gpusPerNode: 8, cpuCores: 96}\n"
    unlimited, counted = parse_inventory(small + large, "it").shapes
    assert (unlimited.free_by_node, unlimited.nodes) == (None, (Resources(gpus=8, cpu_cores=96),))
    assert counted.gpus_per_node == 8
    assert counted.room_for(Resources(gpus=1, cpu_cores=5, memory_bytes=16 * GIB)) == 3 + 3 + 8
    assert counted.room_for(Resources(gpus=1, cpu_cores=1, memory_bytes=33 * GIB)) == 1 + 1 + 8


def test_an_inventory_file_may_hold_mig_instances_but_no_shared_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "gpus.yaml"
    slices = "- {gpu: NVIDIA-H100-80GB-HBM3-MIG-3g.40gb, gpusPerNode: 2, nodes: 4}\n"
    inventory.write_text(slices)
    file = write(tmp_path, a_document())
    assert main(["plan", "-f", file, "--inventory", str(inventory), "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert (plan["accelerator"], plan["tensorParallelSize"]) == ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", 1)
    inventory.write_text(slices + "- {gpu: NVIDIA-L4-SHARED, gpusPerNode: 4}\n")
    assert main(["plan", "-f", file, "--inventory", str(inventory)]) == 2
    assert "shared between pods" in capsys.readouterr().err


def test_every_problem_of_an_inventory_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = tmp_path / "gpus.yaml"
    inventory.write_text(
        "- {gpu: L40, gpusPerNode: 0, node: 2, cpuCores: 1.5}\n- {gpu: NVIDIA-L40X, gpusPerNode: 1}\n- 5\n"
    )
    file = write(tmp_path, a_document())
    assert main(["plan", "-f", file, "--inventory", str(inventory)]) == 2
    err = capsys.readouterr().err
    for words in ("[0].gpusPerNode", "[0].node", "[0].cpuCores", "[1].gpu", "[2]", f"5 problems in {inventory}"):
        assert words in err


def test_plans_and_tokens_load_neither_kopf_nor_kubernetes(tmp_path: Path) -> None:
    program = f"""
import sys
from vlm_operator.cli.main import main
assert main(["plan", "-f", {write(tmp_path, a_document())!r}]) == 0
assert main(["tokens", "--model", {MODEL!r}, "--image", "640x480"]) == 0
sys.exit(bool({{"kopf", "kubernetes", "aiohttp"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout


def test_a_reader_that_leaves_early_causes_no_traceback() -> None:
    command = [sys.executable, "-m", "vlm_operator.cli.main", "catalogue", "models", "-o", "json"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 141


def test_an_interruption_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("vlm_operator.cli.catalogue_command.run_crd", interrupted)
    assert main(["crd"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_causes_no_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "vlm_operator.cli.main", "catalogue", "gpus"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr) == (2, "vlmctl: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize("text", [b"\xd7\xff", b"[1", b"- a", b"a: b"])
def test_a_broken_kubeconfig_is_named(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_bytes(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert main(["explain", "any"]) == 3
    assert str(file) in capsys.readouterr().err


def test_a_line_that_is_not_utf_8_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = json.dumps({"model": MODEL, "width": 1024, "height": 1024}).encode()
    file = tmp_path / "requests.jsonl"
    file.write_bytes(b"\n".join([b"\xff\xfe", good]))
    assert main(["tokens", "--requests", str(file)]) == 0
    bad, counted = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert bad["error"]["reason"] == "BadRequest"
    assert counted["embed_tokens"] == 1369
