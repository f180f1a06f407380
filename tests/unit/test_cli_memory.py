"""``vlmctl memory``: where one GPU's memory goes, does the server start, and what would."""

import json
import re
import shlex
from typing import Any

import pytest
import yaml

from vlm_operator.cli.main import main
from vlm_operator.cli.output import COLUMNS

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
ON_L4 = ("--model", QWEN_7B, "--gpu", "l4")


def answer(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    status = main(["memory", *options])
    return status, capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(answer(capsys, *options, "--output", "json")[1])
    return read


def test_a_server_that_starts_says_so_first_with_its_cache_and_what_is_to_spare(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out = answer(capsys, *ON_L4, "--max-model-len", "8192", "--cap", "1003520")
    assert status == 0
    assert out.splitlines()[0] == f"{QWEN_7B} on 1 × NVIDIA L4 · vLLM 0.33.0"
    assert re.search(r"✔ starts .* tokens of KV cache .* requests of 8,192 tokens at once .* to spare", out)
    assert '"max_pixels":1003520' in out
    assert "--gpu-memory-utilization 0.92" in out
    assert "profiled with 1 image of 1,280 tokens; budget and cache 2,048 tokens" in out
    assert max(map(len, out.splitlines())) <= COLUMNS


def test_the_printed_parts_sum_to_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = answer(capsys, *ON_L4, "--max-model-len", "8192")
    total = re.search(r"Memory per GPU +(\d+\.\d) GiB seen by the engine \(estimated\), 22\.5 by the driver", out)
    assert total is not None
    parts = re.findall(r"^    \w[\w, ]+? +(-?\d+\.\d) +-?\d+\.\d  ", out, re.MULTILINE)
    assert len(parts) == 9
    assert sum(map(float, parts)) == pytest.approx(float(total[1]))


def test_json_parts_sum_to_the_gpu_and_carry_their_certainty(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *ON_L4, "--max-model-len", "8192", "--cap", "1003520")
    parts = found["memoryPerGPU"]
    assert sum(part["mebibytes"] for part in parts) == found["gpuMemory"]["engineMebibytes"]
    assert {part["part"]: part["certainty"] for part in parts}["weights"] == "computed"
    assert {part["part"]: part["certainty"] for part in parts}["activations"] == "calibrated"
    assert all(
        part["mebibytesAtWorst"] >= part["mebibytes"] for part in parts if part["part"] in {"activations", "buffers"}
    )
    assert found["starts"] is True
    assert found["kvCache"]["likely"]["tokens"] > found["kvCache"]["atWorst"]["tokens"] > 8192


def test_yaml_says_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    as_yaml = yaml.safe_load(answer(capsys, *ON_L4, "--output", "yaml")[1])
    assert as_yaml == document(capsys, *ON_L4)


def test_what_does_not_start_names_the_numbers_and_single_changes_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = answer(capsys, *ON_L4)
    assert status == 1
    assert re.search(r"✘ does not start: weights 15\.6 GiB per GPU leave .* GiB for KV cache; one request needs", out)
    assert "2 × NVIDIA L4, not 1" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("Next:")) <= COLUMNS


def test_every_change_that_is_offered_starts_and_the_next_step_can_be_pasted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = (*ON_L4, "--videos-per-request", "1", "--max-model-len", "20000")
    found = document(capsys, *given)
    assert found["starts"] is False
    assert len(found["changes"]) >= 2
    for change in found["changes"]:
        options = dict(zip(given[::2], given[1::2], strict=True)) | change["options"]
        after = document(capsys, *(word for pair in options.items() for word in pair))
        assert after["starts"] is True, change
        assert after["kvCache"]["spareMebibytes"] == change["spareMebibytes"]
        assert after["kvCache"]["atWorst"]["tokens"] == change["kvCacheTokens"]
    _, out = answer(capsys, *given)
    step = out.splitlines()[-1].removeprefix("Next: vlmctl ")
    assert main(shlex.split(step)) == 0


def test_a_share_that_leaves_too_little_beside_the_engine_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--model", QWEN_7B, "--gpu", "l40s", "--max-model-len", "8192")
    found = document(capsys, *given, "--utilization", "1.0")
    assert (found["starts"], found["reason"]) == (False, "OutsideBudget")
    share = next(c["options"]["--utilization"] for c in found["changes"] if "--utilization" in c["options"])
    assert answer(capsys, *given, "--utilization", share)[0] == 0
    assert answer(capsys, *given, "--utilization", f"{float(share) + 0.01:.2f}")[0] == 1


def test_an_fp8_cache_is_refused_where_the_gpu_has_no_fp8(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--model", QWEN_7B, "--max-model-len", "8192", "--kv-cache-dtype", "fp8")
    assert document(capsys, *given, "--gpu", "a100-40gb-sxm")["reason"] == "KVCacheDtype"
    narrow = document(capsys, *given, "--gpu", "l40s")["kvCache"]["atWorst"]["tokens"]
    wide = document(capsys, *given[:-2], "--gpu", "l40s")["kvCache"]["atWorst"]["tokens"]
    assert narrow == pytest.approx(2 * wide, rel=0.01)


def test_the_longest_context_that_is_offered_is_the_longest(capsys: pytest.CaptureFixture[str]) -> None:
    changes = document(capsys, *ON_L4)["changes"]
    longest = next(int(c["options"]["--max-model-len"]) for c in changes if "--max-model-len" in c["options"])
    assert answer(capsys, *ON_L4, "--max-model-len", str(longest))[0] == 0
    assert answer(capsys, *ON_L4, "--max-model-len", str(longest + 256))[0] == 1


def test_a_mig_instance_is_a_gpu_of_its_own_size(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        capsys, "--model", QWEN_7B, "--gpu", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "--max-model-len", "8192"
    )
    assert found["starts"] is True
    assert found["gpuMemory"]["driverMebibytes"] == 40 * 10**9 // 2**20
    assert found["gpuMemory"]["certainty"] == "estimated"


def test_videos_cost_what_the_engine_profiles_with(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--gpu", "a100-40gb-sxm")
    without, videos = document(capsys, *options), document(capsys, *options, "--videos-per-request", "1")
    assert without["encoder"]["budgetTokens"] == 16_384
    assert videos["encoder"] == {"budgetTokens": 114_688, "modality": "video", "items": 1, "tokensPerItem": 114_688}
    assert videos["kvCache"]["likely"]["mebibytes"] < without["kvCache"]["likely"]["mebibytes"] - 10 * 1024


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpu", "h100-80gb-sxm", "--tp", "8"), "28 attention heads cannot be split over tensor parallel size 8"),
        (("--gpu", "h100-80gb-sxm", "--tp", "8"), "powers of two that work: 1, 2, 4"),
        (("--gpu", "h100-80gb-sxm", "--tp", "16"), "one node has at most 8"),
        (("--gpu", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "--tp", "2"), "MIG instances cannot reach each other"),
        (("--gpu", "t4"), "compute capability 7.5"),
        (("--gpu", "a100-40gb-sxm", "--kv-cache-dtype", "fp8"), "fp8 needs compute capability 8.9"),
        (("--gpu", "l40s", "--max-model-len", "200000"), "above the 128,000 tokens that the checkpoint allows"),
        (("--gpu", "l40s", "--max-num-batched-tokens", "9", "--max-num-seqs", "16"), "fewer than 16 sequences"),
    ],
)
def test_what_the_engine_refuses_is_refused_with_the_rule_and_the_numbers(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = answer(capsys, "--model", QWEN_7B, *options)
    assert status == 1
    assert words in " ".join(out.split())
    found = document(capsys, "--model", QWEN_7B, *options)
    assert found["starts"] is False
    assert words in found["message"]
    step = out.splitlines()[-1].removeprefix("Next: vlmctl ")
    assert main(shlex.split(step)) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", QWEN_7B, "--gpu", "h900"), "nearest: h200"),
        (("--model", "Qwen/Qwen2.5-VL-7B", "--gpu", "l4"), QWEN_7B),
        (("--model", QWEN_7B, "--gpu", "mi300x"), "NVIDIA"),
        (("--model", QWEN_7B, "--gpu", "NVIDIA-L4-SHARED"), "shared between pods"),
        (("--model", QWEN_7B, "--gpu", "l4", "--cap", "1000000"), "nearest: 1000384"),
        (("--model", QWEN_7B, "--gpu", "l4", "--utilization", "92"), "0.01 to 1.00"),
        (("--model", QWEN_7B, "--gpu", "l4", "--tp", "0"), "above 0"),
        (("--model", "google/gemma-3-4b-it", "--gpu", "l4", "--videos-per-request", "1"), "videos"),
    ],
)
def test_wrong_input_is_said_with_what_would_be_right(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: Any = main(["memory", *options])
    except SystemExit as stopped:
        status = stopped.code
    out, err = capsys.readouterr()
    assert status in ({1, 2} if "mi300x" in options else {2})
    assert words in err + out
