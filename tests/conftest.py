"""Options of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        metavar="DIR",
        default=None,
        help="read the conformance rows from DIR (*.jsonl, *.jsonl.gz)",
    )


@pytest.fixture(autouse=True)
def no_model_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the hub's address, unless a test starts a hub of its own."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_TOKEN", raising=False)
