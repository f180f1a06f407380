"""The README's example is what the program prints; UPDATE_GOLDENS=1 writes it anew."""

import os
import re
from pathlib import Path

import pytest

from vlm_operator.cli.main import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
COMMAND = "vlmctl plan -f manifests/samples/invoices.yaml"
BLOCK = re.compile(rf"(```console\n\$ {re.escape(COMMAND)}\n)(.*?)(```)", re.DOTALL)
SAMPLE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def test_the_plan_in_the_readme_is_what_vlmctl_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(COMMAND.split()[1:]) == 0
    printed = capsys.readouterr().out
    text = README.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_GOLDENS"):
        README.write_text(BLOCK.sub(lambda found: found[1] + printed + found[3], text), encoding="utf-8")
        text = README.read_text(encoding="utf-8")
    found = BLOCK.search(text)
    assert found is not None
    assert found[2] == printed


def test_the_object_in_the_readme_is_the_sample() -> None:
    found = SAMPLE.search(README.read_text(encoding="utf-8"))
    assert found is not None
    assert found[1] == (ROOT / "manifests" / "samples" / "invoices.yaml").read_text(encoding="utf-8")
