"""Laws of a plan that hold for every model, GPU and workload (the contract's laws 1 to 4)."""

import copy
import json
from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.api.validate import parse_resource
from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.render.engine_args import render_engine_args
from vlm_operator.report.status_plan import no_fit_status, plan_status
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.units import MIB

TRIED = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
QUICK = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@cache
def inventory() -> Inventory:
    return catalogue_inventory()


@cache
def served_models() -> tuple[str, ...]:
    return tuple(model for model in model_ids() if find_model(model).served)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    side = st.one_of(st.integers(28, 1024), st.integers(1024, 6000))
    prompt, output = draw(st.integers(1, 8000)), draw(st.integers(1, 2000))
    width = draw(side)
    spec: dict[str, Any] = {
        "model": {"id": draw(st.sampled_from(served_models()))},
        "workload": {
            "images": {
                "sizes": [
                    {"width": width, "height": draw(st.integers(max(28, width // 20), width * 2)), "weight": 1},
                    {"width": 640, "height": 480, "weight": draw(st.integers(1, 100))},
                ],
                "perRequest": [{"count": draw(st.sampled_from([2, 3, 8]))}, {"count": 1, "weight": 3}],
            },
            "text": {"promptTokens": {"p50": min(prompt, 300), "p99": prompt}},
            "output": {"tokens": {"p50": min(output, 100), "max": output}},
            "traffic": draw(
                st.one_of(
                    st.builds(lambda n: {"concurrentRequests": n}, st.integers(1, 300)),
                    st.builds(lambda n: {"requestsPerMinute": n}, st.integers(1, 600)),
                )
            ),
        },
        "accelerators": {"maxPerReplica": draw(st.sampled_from([1, 2, 8]))},
    }
    gpus = sorted({shape.gpu.id for shape in inventory().shapes})
    spec["accelerators"]["allowed"] = draw(st.lists(st.sampled_from(gpus), min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        spec["accelerators"]["maxHourlyCostCents"] = draw(st.integers(10, 3000))
    if draw(st.booleans()):
        spec["scaling"] = {"maxReplicas": draw(st.integers(1, 4))}
    if draw(st.booleans()):
        spec["quality"] = {"minPixelsPerImage": draw(st.sampled_from([1, 200_704, 1_003_520, 12_000_000]))}
    if draw(st.booleans()):
        spec["objectives"] = {
            draw(st.sampled_from(["ttft", "tpot", "requestLatency"])): {
                "percentile": draw(st.sampled_from([50, 95, 99])),
                "milliseconds": draw(st.integers(1, 10_000)),
            }
        }
    return spec


def parse(spec: dict[str, Any]) -> VLMDeploymentSpec:
    head = {"apiVersion": "vlm-operator.dev/v1alpha1", "kind": "VLMDeployment", "metadata": {"name": "any"}}
    return parse_resource({**head, "spec": spec}).spec


def plan(spec: dict[str, Any], *, simulate: bool = False) -> Plan | NoFit:
    return plan_deployment(parse(spec), inventory(), simulate=simulate)


def rendered(spec: dict[str, Any], verdict: Plan) -> dict[str, str]:
    args = render_engine_args(parse(spec), verdict)[1:]
    return {
        arg: args[at + 1] if at + 1 < len(args) else "" for at, arg in enumerate(args) if arg.startswith("--")
    }  # fmt: skip


@QUICK
@given(specs())
def test_every_declared_request_is_accepted_by_the_rendered_flags(spec: dict[str, Any]) -> None:
    verdict = plan(spec)
    if isinstance(verdict, NoFit):
        return
    flags, workload = rendered(spec, verdict), spec["workload"]
    most = max(entry["count"] for entry in workload["images"]["perRequest"])
    text = workload["text"]["promptTokens"]["p99"] + workload["output"]["tokens"]["max"]
    largest = max(image.prompt_tokens for image in verdict.tokens.images)
    assert most * largest + text <= int(flags["--max-model-len"])
    assert int(flags["--max-num-seqs"]) <= int(flags["--max-num-batched-tokens"])
    limits = json.loads(flags["--limit-mm-per-prompt"])
    assert limits["image"]["count"] >= most
    assert (limits["video"], limits["audio"]) == (0, 0)
    assert all(limit.needed <= limit.limit for limit in verdict.limits)
    assert json.loads(flags.get("--mm-processor-kwargs", "{}")) == dict(verdict.flags.mm_processor_kwargs)


@QUICK
@given(specs())
def test_memory_sums_to_what_the_engine_sees(spec: dict[str, Any]) -> None:
    verdict = plan(spec)
    if isinstance(verdict, NoFit):
        return
    parts = plan_status(verdict)["estimate"]["memoryPerGPU"]
    assert parts[-1]["part"] == "headroom"
    assert all(part["mebibytes"] >= 0 for part in parts)
    assert sum(part["mebibytes"] for part in parts) == verdict.gpu.engine_memory_bytes // MIB


@QUICK
@given(specs())
def test_a_no_fit_has_numbers_and_its_advice_works(spec: dict[str, Any]) -> None:
    check_advice(spec, simulate=False)


@TRIED
@given(specs())
def test_advice_holds_under_simulated_traffic(spec: dict[str, Any]) -> None:
    check_advice(spec, simulate=True)


def check_advice(spec: dict[str, Any], *, simulate: bool) -> None:
    verdict = plan(spec, simulate=simulate)
    if isinstance(verdict, Plan):
        return
    assert verdict.reason
    assert verdict.message
    json.dumps(no_fit_status(verdict))
    for suggestion in verdict.suggestions:
        changed = copy.deepcopy(spec)
        for path, value in suggestion.changes.items():
            *above, last = path.split(".")
            place = changed
            for name in above:
                place = place.setdefault(name, {})
            if value is None:
                del place[last]
            else:
                place[last] = list(value) if isinstance(value, tuple) else value
        assert changed != spec, str(suggestion)
        assert isinstance(plan(changed, simulate=simulate), Plan), str(suggestion)


@TRIED
@given(specs())
def test_a_tried_plan_keeps_every_target_and_keeps_up(spec: dict[str, Any]) -> None:
    verdict = plan(spec, simulate=True)
    if isinstance(verdict, NoFit):
        return
    assert verdict.traffic is not None
    assert verdict.traffic.sustainable
    assert 0 < verdict.traffic.utilisation <= 1
    fields = {"ttft": verdict.latency.ttft, "tpot": verdict.latency.tpot, "requestLatency": verdict.latency.request}
    for name, target in spec.get("objectives", {}).items():
        assert fields[name].at(target["percentile"]) * 1000 <= target["milliseconds"]


@TRIED
@given(specs())
def test_the_same_input_gives_the_same_tried_plan(spec: dict[str, Any]) -> None:
    assert plan(spec, simulate=True) == plan(spec, simulate=True)


@QUICK
@given(specs(), st.integers(0, 2000))
def test_more_money_never_gives_worse(spec: dict[str, Any], more: int) -> None:
    spec["accelerators"].setdefault("maxHourlyCostCents", 500)
    before = plan(spec)
    richer = copy.deepcopy(spec)
    richer["accelerators"]["maxHourlyCostCents"] += more
    after = plan(richer)
    if isinstance(before, Plan):
        assert isinstance(after, Plan)
        assert (after.hourly_cents or 0) <= (before.hourly_cents or 0)
