"""What `make bench` measures is there to be measured."""

from tests.bench.__main__ import SAMPLES, fitted_requests, judged_candidates
from vlm_operator.api.validate import load_resources
from vlm_operator.planning import catalogue_inventory


def test_the_bench_finds_the_candidates_of_a_plan_and_what_their_memory_is_asked_with() -> None:
    resource = load_resources((SAMPLES / "chat.yaml").read_text(encoding="utf-8"), "chat.yaml")[0]
    judged = judged_candidates(resource, catalogue_inventory())
    assert judged
    assert fitted_requests(judged)
