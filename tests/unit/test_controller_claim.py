"""A cache that exists cannot become another one: the user is told, not ignored."""

from typing import Any

import pytest

from vlm_operator.controller.apply import _refuse_changed_claim
from vlm_operator.errors import ClusterError


def claim(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "chat-cache"}, "spec": spec}


def test_another_access_mode_or_class_is_refused_by_name() -> None:
    live = claim(accessModes=["ReadWriteOnce"], storageClassName="fast")
    with pytest.raises(ClusterError, match="accessModes and storageClassName"):
        _refuse_changed_claim(claim(accessModes=["ReadWriteMany"], storageClassName="slow"), live)


def test_a_class_that_the_cluster_chose_and_a_grown_size_are_fine() -> None:
    live = claim(accessModes=["ReadWriteOnce"], storageClassName="standard", resources={"requests": {"storage": "2Ti"}})
    _refuse_changed_claim(claim(accessModes=["ReadWriteOnce"], resources={"requests": {"storage": "1Ti"}}), live)
