"""``vlmctl tokens`` run in this process."""

import json
from typing import Any

import pytest

from vlm_operator.cli.main import main

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["tokens", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status, out, _ = run(capsys, *arguments, "-o", "json")
    return status, json.loads(out)
