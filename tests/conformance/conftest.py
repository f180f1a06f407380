"""Refuses a folder without rows, and says which files of rows a folder lacks."""

import pytest

from tests.conformance.vectors import DATA, find_file, has_rows, vectors_folder


def pytest_configure(config: pytest.Config) -> None:
    folder = vectors_folder(config)
    if not has_rows(folder):
        raise pytest.UsageError(f"--vectors: {folder} holds no rows (*.jsonl, *.jsonl.gz): nothing to compare")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    folder = vectors_folder(config)
    lacking = [name for path in sorted(DATA.glob("*.jsonl.gz")) if not find_file(folder, name := path.stem)]
    if lacking:
        terminalreporter.section(f"conformance: {folder} lacks these files, so nothing of them was compared")
        for name in lacking:
            terminalreporter.line(name)
