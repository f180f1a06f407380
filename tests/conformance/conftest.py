"""Leaves out rows that no rule is built for, and says which."""

import pytest

UNBUILT = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, unbuilt, empty = [], [], []
    for item in items:
        if item.get_closest_marker("unbuilt") is not None:
            unbuilt.append(item)
        elif item.name.endswith("[NOTSET]") and "conformance" in item.nodeid:
            empty.append(item)
        else:
            kept.append(item)
    config.stash[UNBUILT] = [item.name for item in unbuilt]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[*unbuilt, *empty])
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    names = config.stash.get(UNBUILT, [])
    if names:
        terminalreporter.section("conformance: rows left out, their architecture has no rule")
        for name in names:
            terminalreporter.line(name)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unbuilt: rows of an architecture that the product refuses")
