"""Every status that the report writes is one that the API server stores whole."""

import json
from typing import Any

import pytest

from tests.support.builders import make_alternative, make_no_fit, make_plan
from vlm_operator.api.status import VLMDeploymentStatus
from vlm_operator.report.status_plan import empty_summary, no_fit_status, plan_status

STATUSES: dict[str, dict[str, Any]] = {
    "a plan": plan_status(make_plan()),
    "a plan with alternatives": plan_status(make_plan(alternatives=(make_alternative(),) * 9)),
    "a plan without a price": plan_status(make_plan(hourly_cents=None)),
    "no fit": no_fit_status(make_no_fit()),
    "nothing known": {"summary": empty_summary("InvalidSpec"), "observedGeneration": 1, "replicas": 0},
}


@pytest.mark.parametrize("status", STATUSES.values(), ids=STATUSES.keys())
def test_a_reported_status_has_only_fields_of_the_contract_and_loses_none(status: dict[str, Any]) -> None:
    model = VLMDeploymentStatus.model_validate_json(json.dumps(status), by_alias=True, by_name=False)
    assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == status
