"""A live object holds what is wanted, whatever the server and others added to it."""

from typing import Any

import pytest

from vlm_operator.controller.differences import holds


@pytest.mark.parametrize(
    ("wanted", "live"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": {}}, {}),
        ({"value": ""}, {}),
        ({"hostNetwork": False}, {}),
        ({"cpu": "1000m"}, {"cpu": "1"}),
        ({"memory": "1024Mi"}, {"memory": "1Gi"}),
        ({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": "2"}),
        ([{"name": "b"}], [{"name": "a"}, {"name": "b", "x": 1}]),
        ({"tolerations": [{"key": "k"}]}, {"tolerations": [{"key": "other"}, {"key": "k", "operator": "Exists"}]}),
        ({"args": ["--a", "--b"]}, {"args": ["--a", "--b"]}),
    ],
)
def test_it_holds(wanted: Any, live: Any) -> None:
    assert holds(wanted, live)


@pytest.mark.parametrize(
    ("wanted", "live"),
    [
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 2}),
        ({"replicas": 0}, {"replicas": 1}),
        ({"a": {"b": 1}}, {"a": None}),
        ({"memory": "2Gi"}, {"memory": "1Gi"}),
        ({"args": ["--a", "--b"]}, {"args": ["--b", "--a"]}),
        ({"args": ["--a"]}, {"args": ["--a", "--b"]}),
        ([{"name": "a", "value": "1"}], [{"name": "a", "value": "one"}]),
        ({"a": {"b": 1}}, {"a": "text"}),
    ],
)
def test_it_does_not_hold(wanted: Any, live: Any) -> None:
    assert not holds(wanted, live)
