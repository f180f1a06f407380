"""Laws of the argument list of ``vllm serve``."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.builders import MODEL_ID, make_flags, make_plan, make_resource
from vlm_operator.render.engine_args import render_engine_args
from vlm_operator.sizing.plan import Plan

FREEZE = MappingProxyType


def args_of(plan: Plan | None = None, **spec: Any) -> list[str]:
    return render_engine_args(make_resource(**spec).spec, plan or make_plan())


def value_of(args: list[str], flag: str) -> str:
    assert args.count(flag) == 1, f"{flag} stands {args.count(flag)} times"
    return args[args.index(flag) + 1]


def test_the_model_comes_first_and_is_served_under_its_own_name() -> None:
    args = args_of()
    assert args[0] == MODEL_ID
    assert value_of(args, "--served-model-name") == MODEL_ID


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--max-model-len", "6656"),
        ("--max-num-seqs", "32"),
        ("--max-num-batched-tokens", "8192"),
        ("--gpu-memory-utilization", "0.90"),
        ("--tensor-parallel-size", "1"),
        ("--mm-encoder-tp-mode", "weights"),
        ("--dtype", "bfloat16"),
        ("--mm-processor-cache-gb", "4"),
        ("--generation-config", "vllm"),
        ("--shutdown-timeout", "60"),
        ("--revision", "cc594898137f460bfe9f0759e9844b3ce807cfb5"),
    ],
)
def test_every_number_of_the_plan_is_a_flag(flag: str, value: str) -> None:
    assert value_of(args_of(), flag) == value


@pytest.mark.parametrize("limits", [{"image": 1}, {"image": {"count": 2, "width": 28, "height": 28}, "video": 0}])
def test_every_modality_is_named_and_those_not_declared_are_zero(limits: Mapping[str, Any]) -> None:
    args = args_of(make_plan(flags=make_flags(limit_mm_per_prompt=limits)))
    named = json.loads(value_of(args, "--limit-mm-per-prompt"))
    assert named["image"] == limits["image"]
    assert (named["video"], named["audio"]) == (0, 0)


def test_the_profiling_hint_and_the_cap_reach_the_engine() -> None:
    args = args_of()
    assert json.loads(value_of(args, "--limit-mm-per-prompt"))["image"] == {
        "count": 4,
        "width": 1036,
        "height": 952,
    }
    assert json.loads(value_of(args, "--mm-processor-kwargs"))["max_pixels"] == 1_003_520


def test_json_is_compact_sorted_and_takes_read_only_mappings() -> None:
    kwargs = FREEZE({"size": FREEZE({"shortest_edge": 1, "longest_edge": 2}), "a": (1, 2)})
    args = args_of(make_plan(flags=make_flags(mm_processor_kwargs=kwargs)))
    assert value_of(args, "--mm-processor-kwargs") == '{"a":[1,2],"size":{"longest_edge":2,"shortest_edge":1}}'


@pytest.mark.parametrize("flag", ["--mm-processor-kwargs", "--hf-overrides", "--kv-cache-dtype"])
def test_a_flag_without_a_value_is_left_out(flag: str) -> None:
    assert flag not in args_of(make_plan(flags=make_flags(mm_processor_kwargs={}, hf_overrides={})))


def test_overrides_and_cache_dtype_stand_where_the_plan_has_them() -> None:
    flags = make_flags(hf_overrides={"max_dynamic_patch": 6}, kv_cache_dtype="fp8")
    args = args_of(make_plan(flags=flags))
    assert value_of(args, "--hf-overrides") == '{"max_dynamic_patch":6}'
    assert value_of(args, "--kv-cache-dtype") == "fp8"


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_remote_code_is_trusted_only_where_the_user_asked(*, planned: bool, asked: bool) -> None:
    plan = make_plan(flags=make_flags(trust_remote_code=planned))
    args = args_of(plan, model={"id": MODEL_ID, "trustRemoteCode": asked})
    assert ("--trust-remote-code" in args) == (planned and asked)


@pytest.mark.parametrize(("path", "location"), [("qwen/7b", "/models/qwen/7b"), (None, "/models")])
def test_weights_on_a_claim_are_loaded_from_their_folder(path: str | None, location: str) -> None:
    claim = {"claimName": "weights", "path": path} if path else {"claimName": "weights"}
    args = args_of(model={"id": MODEL_ID, "revision": "main", "storage": {"persistentVolumeClaim": claim}})
    assert args[0] == location
    assert value_of(args, "--served-model-name") == MODEL_ID
    assert "--revision" not in args


def test_flags_accept_the_largest_declared_request() -> None:
    plan = make_plan()
    args = args_of(plan)
    assert int(value_of(args, "--max-model-len")) >= plan.tokens.request_max
    assert json.loads(value_of(args, "--limit-mm-per-prompt"))["image"]["count"] >= plan.images_per_prompt
    assert int(value_of(args, "--max-num-batched-tokens")) >= plan.tokens.image_max


def test_no_argument_is_a_number_with_a_suffix() -> None:
    numbers = [arg for arg in args_of() if arg[:1].isdigit()]
    assert all(arg.replace(".", "", 1).isdigit() for arg in numbers if len(arg) < 20)
