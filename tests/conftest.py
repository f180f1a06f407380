"""Options of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        metavar="DIR",
        default=None,
        help="read the conformance rows from DIR (*.jsonl, *.jsonl.gz)",
    )
