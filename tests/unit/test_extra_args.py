"""What becomes of the arguments that a user adds: planned, passed on, or refused with the entry and the next step."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_api_refusals import valid_document
from vlm_operator.api import names
from vlm_operator.api.validate import load_resources, parse_resource
from vlm_operator.catalogue import load
from vlm_operator.catalogue.types import EngineFlag, FlagRules
from vlm_operator.cli.main import main
from vlm_operator.controller.decide import decide
from vlm_operator.engine.command_line import CommandLineRefusal, parse_command_line
from vlm_operator.engine.extra_args import read_extra_args
from vlm_operator.errors import CatalogueError, InputError, Problem
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.render.engine_args import render_engine_args
from vlm_operator.report.conditions import judge_conditions
from vlm_operator.report.observation import Observation
from vlm_operator.report.status_plan import plan_digest
from vlm_operator.sizing.plan import NoFit, Plan, Suggestion
from vlm_operator.sizing.workload import AskedFlags

VERSION = "0.33.0"
ENGINE = load.find_engine(VERSION)
RULES = load.flag_rules(VERSION)
FLAGS = {flag.dest: flag for flag in ENGINE.flags}
EXAMPLES = {  # values that the engine takes where a general one of the kind would not do
    "seed": "7",
    "tool_call_parser": "hermes",
    "reasoning_parser": "qwen3",
    "gpu_memory_utilization": "0.85",
    "kv_cache_dtype": "fp8",
    "dp_supervisor_probe_failure_threshold": "4",
}
NEEDED = {"enable_auto_tool_choice": ("--tool-call-parser=hermes",), "enable_log_outputs": ("--enable-log-requests",)}


def example(flag: EngineFlag) -> tuple[str, ...]:
    """Return arguments that give a flag a value other than its default."""
    name = flag.names[0]
    if flag.kind == "switch":
        unlike = flag.default is True or True in RULES[flag.dest].unless
        return (flag.negative_names[0] if unlike else name, *NEEDED.get(flag.dest, ()))
    same = (flag.default, *RULES[flag.dest].unless)
    values = [str(value) for value in (*flag.choices, *flag.known_values) if value not in same]
    if flag.dest in EXAMPLES:
        return f"{name}={EXAMPLES[flag.dest]}", *NEEDED.get(flag.dest, ())
    general = {"json": "{}", "object": "{}", "json or str": "{}", "str": "text", "float": "0.5"}.get(flag.kind, "3")
    if isinstance(flag.default, list) and flag.kind == "json":
        general = '["a"]'
    return (f"{name}={next(iter(values), general)}",)


def problems_of(*arguments: str) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        read_extra_args(arguments, VERSION)
    return list(caught.value.problems)


def test_every_flag_of_the_engine_is_planned_passed_or_refused() -> None:
    assert set(RULES) == set(FLAGS)
    assert len(RULES) == 320
    planned = {dest for dest, rule in RULES.items() if rule.verdict == "planned"}
    by_dest = {"utilization_percent": "gpu_memory_utilization"}
    assert planned == {by_dest.get(field.name, field.name) for field in fields(AskedFlags)} - {"passed"}


def test_a_flag_without_a_rule_or_with_two_is_an_error_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load._parse(load._FLAG_RULES, FlagRules.model_validate)
    for rules in (whole.rules[1:], (*whole.rules, whole.rules[0])):
        other = whole.model_copy(update={"rules": rules})
        monkeypatch.setattr(load, "_parse", lambda *_, other=other: other)
        with pytest.raises(CatalogueError, match="tensor_parallel_size"):
            load.flag_rules.__wrapped__(VERSION)


@pytest.mark.parametrize("flag", ENGINE.flags, ids=lambda flag: flag.dest)
def test_each_flag_goes_the_way_of_its_rule(flag: EngineFlag) -> None:
    arguments = example(flag)
    rule = RULES[flag.dest]
    if rule.verdict == "refused":
        problem = problems_of(*arguments)[0]
        if flag.dest == "model":  # the engine itself turns the flag into the model in front
            assert "set spec.model.id" in problem.message
            return
        assert problem.path == "spec.engine.extraArgs[0]"
        assert problem.message.startswith((*flag.names, *flag.negative_names))
        assert problem.message.endswith(rule.instead)
        return
    asked = read_extra_args(arguments, VERSION)
    assert bool(asked.obeyed) == (rule.verdict == "planned")
    assert bool(asked.passed) == (rule.verdict == "passed")
    parsed = parse_command_line(arguments, ENGINE)
    assert not isinstance(parsed, CommandLineRefusal)
    again = parse_command_line(asked.passed, ENGINE)
    assert not isinstance(again, CommandLineRefusal)
    if rule.verdict == "passed":
        assert again == parsed


OBEYED: dict[tuple[str, ...], dict[str, Any]] = {
    ("-tp", "2"): {"tensor_parallel_size": 2},
    ("--max-model-len=8k",): {"max_model_len": 8000},
    ("--max_model_len", "8K"): {"max_model_len": 8192},
    ("--max-num-seqs=4", "--max-num-seqs=8"): {"max_num_seqs": 8},
    ("--gpu-memory-util", "0.85"): {"utilization_percent": 85},
    ("--no-enable-log-deltas", "--middleware=a.B", "--middleware", "c.D"): {
        "passed": ("--disable-log-deltas", "--middleware=a.B", "--middleware=c.D")
    },
    ("--override-generation-config.temperature", "0.1"): {
        "passed": ('--override-generation-config={"temperature":0.1}',)
    },
    ("--allowed-media-domains", "a.org", "b.org", "--chat-template={{ x }}"): {
        "passed": ("--allowed-media-domains", "a.org", "b.org", "--chat-template={{ x }}")
    },
    # What the operator or the engine does anyway is left out.
    ("--port=8000", "--host", "0.0.0.0", "--dtype=bfloat16", "--async-scheduling", "-dp=1"): {},  # noqa: S104
    (): {},
}


@pytest.mark.parametrize(("arguments", "asked"), OBEYED.items(), ids=" ".join)
def test_flags_are_read_as_the_engine_reads_them(arguments: tuple[str, ...], asked: dict[str, Any]) -> None:
    assert read_extra_args(arguments, VERSION) == AskedFlags(**asked)


REFUSED = {
    ("--max-model-length=8192",): (0, "no flag of vLLM 0.33.0; did you mean --max-model-len?"),
    ("--seed=1", "--swap-space", "4"): (1, "--swap-space is no flag"),
    ("--max-num-seqs 64",): (0, "write --max-num-seqs=64, or two entries"),
    ("--max-num-seqs=many",): (0, "invalid int value: 'many'; it takes a whole number"),
    ("--seed=1", "--max-num-seqs"): (1, "expected one argument; it takes a whole number"),
    ("--max-num-seqs=0",): (0, "--max-num-seqs is 0, but must be at least 1"),
    ("--scheduling-policy=lifo",): (0, "choose from"),
    ("--tool-call-parser=hermez",): (0, "did you mean hermes?"),
    ("--enable-auto-tool-choice",): (0, "needs --tool-call-parser"),
    ("--max=3",): (0, "write the whole name"),
    ("64",): (0, "64 is taken for the model; set spec.model.id"),
    ("--seed=1", "Qwen/Qwen3-0.6B"): (1, "is taken for the model"),
    ("--root-path=$(HOME)",): (0, "Kubernetes replaces $("),
    ("--seed=1", "--root-path", "$(HOME)"): (1, "Kubernetes replaces $("),
    ('--default-chat-template-kwargs={"a": "\\u0024(HOME)"}',): (0, "Kubernetes replaces $("),
    ("--max-model-len=auto",): (0, "leave it out: the plan sets"),
    ("--gpu-memory-utilization=0.925",): (0, "write 0.92 or 0.93"),
    ("--dtype=auto",): (0, "planned in bfloat16"),
    ("--no-enable-prefix-caching",): (0, "planned with prefix caching"),
    ("--kv-cache-dtype=fp9",): (0, "must be one of auto, bfloat16"),
    ("--allowed-origins=5",): (0, "must be a list of texts in JSON"),
    ("--seed=-1",): (0, "must be from 0 to 4,294,967,295"),
}


@pytest.mark.parametrize(("arguments", "expected"), REFUSED.items(), ids=lambda value: str(value[0]))
def test_a_refusal_names_the_entry_and_the_next_step(arguments: tuple[str, ...], expected: tuple[int, str]) -> None:
    index, words = expected
    problem = problems_of(*arguments)[0]
    assert problem.path == f"spec.engine.extraArgs[{index}]"
    assert words in problem.message


def test_every_wrong_entry_is_told_and_no_secret_is_repeated() -> None:
    assert [problem.path[-3:] for problem in problems_of("--port=1", "--seed=1", "--uds=/x")] == ["[0]", "[2]"]
    for flag in ("--api-key", "--hf-token"):
        assert "s3cret" not in problems_of(f"{flag}=s3cret")[0].message


TEXTS = st.sampled_from(["8", "-1", "fp8", "auto", "", "{}", "--", "-", "x y", "a.b", "$x", "-O3", "data", "0.5", "[]"])
ENTRIES = st.one_of(
    TEXTS,
    st.text(max_size=8),
    st.builds(
        lambda name, equals, value: f"{name}={value}" if equals else name,
        st.sampled_from([name for flag in ENGINE.flags for name in flag.names]),
        st.booleans(),
        TEXTS,
    ),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(ENTRIES, max_size=5))
def test_any_list_of_texts_is_obeyed_or_refused_at_one_of_its_entries(arguments: list[str]) -> None:
    try:
        asked = read_extra_args(arguments, VERSION)
    except InputError as error:
        found = {problem.path for problem in error.problems}
    else:
        found = set()
        assert read_extra_args(asked.passed, VERSION) == AskedFlags(passed=asked.passed)
    assert found <= {f"spec.engine.extraArgs[{index}]" for index in range(len(arguments))} | {"spec.engine.extraArgs"}


def document_with(*arguments: str) -> dict[str, Any]:
    document = valid_document()
    document["spec"]["engine"] = {"extraArgs": list(arguments)}
    return document


def outcome_of(*arguments: str, **spec: Any) -> Plan | NoFit:
    document = document_with(*arguments)
    document["spec"].update(spec)
    return plan_deployment(parse_resource(document).spec, catalogue_inventory(), simulate=False)


def plan_of(*arguments: str, **spec: Any) -> Plan:
    outcome = outcome_of(*arguments, **spec)
    assert isinstance(outcome, Plan), outcome
    return outcome


def test_a_plan_takes_the_asked_values_says_so_and_renders_each_flag_once() -> None:
    arguments = ["-tp=2", "--max-model-len=20000", "--max-num-seqs=24", "--max-num-batched-tokens=3000"]
    arguments += ["--gpu-memory-utilization=0.80", "--kv-cache-dtype=fp8", "--mm-encoder-tp-mode=data", "--seed=3"]
    plan = plan_of(*arguments)
    flags = plan.flags
    assert (flags.tensor_parallel_size, plan.gpus_per_replica) == (2, 2)
    assert (flags.max_model_len, flags.max_num_seqs, flags.max_num_batched_tokens) == (20_000, 24, 3000)
    assert (flags.gpu_memory_utilization_percent, flags.kv_cache_dtype) == (80, "fp8")
    assert flags.encoder_parallel_mode == "data"
    reasons = " ".join(plan.reasons)
    assert "--max-num-batched-tokens 3000, --kv-cache-dtype fp8" in reasons
    assert "--gpu-memory-utilization 0.80" in reasons
    assert "passed on from engine.extraArgs: --seed=3" in reasons
    assert "cheaper" not in reasons.replace("cheapest", "")
    rendered = render_engine_args(parse_resource(document_with(*arguments)).spec, plan)
    given_flags = [argument.partition("=")[0] for argument in rendered if argument.startswith("--")]
    assert len(set(given_flags)) == len(given_flags)
    assert rendered[-1] == "--seed=3"


def test_a_share_above_the_engines_default_is_obeyed_with_a_warning_where_it_fits() -> None:
    accelerators = {"allowed": ["h200-sxm"]}
    plan = plan_of("--gpu-memory-utilization=0.95", accelerators=accelerators)
    assert plan.flags.gpu_memory_utilization_percent == 95
    assert plan.memory.part("headroom").size_bytes >= 0
    assert any(reason.startswith("above 0.92 of the memory") for reason in plan.reasons)
    usual = plan_of("--gpu-memory-utilization=0.92", accelerators=accelerators)
    assert not any(reason.startswith("above") for reason in usual.reasons)


def test_passed_arguments_change_the_pods_and_nothing_else_of_the_plan() -> None:
    plain, seeded = plan_of(), plan_of("--seed=3")
    assert plan_digest(plain) != plan_digest(seeded)
    assert plan_digest(plan_of("--port=8000")) == plan_digest(plain)
    assert (plain.gpu, plain.replicas, plain.memory, plain.latency) == (
        seeded.gpu,
        seeded.replicas,
        seeded.memory,
        seeded.latency,
    )


TOO_MUCH = {  # an asked value that breaks what is declared, and the figures that the refusal names
    "--max-model-len=5000": ("ContextTooLong", "--max-model-len allows 5,000"),
    "--max-model-len=999999": ("ContextTooLong", "999,999"),
    "--max-num-batched-tokens=4": ("BatchTooSmall", "4 is below the 8 that a token for each of --max-num-seqs 8 takes"),
    "--gpu-memory-utilization=0.05": ("Weights", "more than the"),
    "--gpu-memory-utilization=1.0": ("OutsideBudget", "use at most 0."),
    "--kv-cache-dtype=turboquant_k8v4": ("KVCacheDtype", "no known size"),
    "--tensor-parallel-size=3": ("attention_heads", "28 attention heads cannot be split"),
}


@pytest.mark.parametrize(("argument", "expected"), TOO_MUCH.items(), ids=str)
def test_an_asked_value_that_does_not_fit_is_no_plan_and_leaving_it_out_is_advised(
    argument: str, expected: tuple[str, str]
) -> None:
    outcome = outcome_of(argument, "--seed=3", accelerators={"allowed": ["h100-80gb-sxm"]})
    assert isinstance(outcome, NoFit)
    assert expected[0] in {rejection.reason for rejection in outcome.nearest}, outcome.nearest
    assert any(expected[1] in rejection.message for rejection in outcome.nearest)
    changes = [suggestion.changes for suggestion in outcome.suggestions]
    assert {"engine.extraArgs": ("--seed=3",)} in changes


def test_fewer_sequences_than_requests_take_more_replicas() -> None:
    workload = {"images": {"sizes": [{"width": 640, "height": 480}]}, "traffic": {"concurrentRequests": 32}}
    assert plan_of("--max-num-seqs=8", workload=workload).replicas == 4
    outcome = outcome_of("--max-num-seqs=8", workload=workload, scaling={"maxReplicas": 3})
    assert isinstance(outcome, NoFit)
    assert outcome.nearest[0].reason == "RunningSequences"
    assert "requests run at once on each of" in outcome.nearest[0].message
    assert "--max-num-seqs allows 8" in outcome.nearest[0].message


def test_advised_arguments_can_be_pasted_as_yaml() -> None:
    kept = ("--seed=3", "--chat-template={{ x }}: #1", "--allowed-media-domains", "64", "a.org")
    words = str(Suggestion(words="1 GPU", changes={"engine.extraArgs": kept}))
    pasted = words.removeprefix("1 GPU (engine.extraArgs: ").removesuffix(")")
    assert yaml.safe_load(pasted) == list(kept)


def test_a_tower_that_cannot_share_images_out_is_not_asked_to() -> None:
    outcome = outcome_of("--mm-encoder-tp-mode=data", model={"id": "google/gemma-3-4b-it"})
    assert isinstance(outcome, NoFit)
    assert outcome.nearest[0].reason == "EncoderMode"


def test_a_kv_cache_type_that_the_quality_does_not_admit_is_refused() -> None:
    with pytest.raises(InputError, match="allowedKVCacheDtypes admits auto"):
        outcome_of("--kv-cache-dtype=fp8", quality={"allowedKVCacheDtypes": ["auto"]})


def test_vlmctl_tells_the_field_and_the_line_of_a_wrong_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
apiVersion: vlm-operator.dev/v1alpha1
kind: VLMDeployment
metadata: {name: invoices}
spec:
  model: {id: Qwen/Qwen2.5-VL-7B-Instruct}
  workload: {images: {sizes: [{width: 640, height: 480}]}}
  engine:
    extraArgs:
      - --max-num-seqs=64
      - --max-model-length=8192
"""
    assert load_resources(text, "file")
    file = tmp_path / "invoices.yaml"
    file.write_text(text)
    assert main(["plan", "-f", str(file), "--inventory", "catalogue"]) != 0
    told = capsys.readouterr().err
    assert "spec.engine.extraArgs[1]" in told
    assert f"{file}:10" in told
    assert "did you mean --max-model-len?" in told


def test_a_resource_with_a_wrong_argument_is_not_accepted() -> None:
    decision = decide(document_with("--enforce-eager"), catalogue_inventory(), None, {})
    verdict = judge_conditions(decision.outcome, Observation(), suspended=False)[names.ACCEPTED]
    assert (verdict.status, verdict.reason) == ("False", names.REASON_INVALID_SPEC)
    assert "spec.engine.extraArgs[0]: --enforce-eager is not taken" in verdict.message
