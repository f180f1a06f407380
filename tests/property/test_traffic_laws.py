"""Laws of simulated traffic that hold for any requests, limits and costs."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.step_costs import LinearCosts
from vlm_operator.sizing.traffic import (
    ClosedLoop,
    ImageWork,
    KVBlocks,
    Lengths,
    Poisson,
    RequestKind,
    RequestMix,
    ServerLimits,
    TrafficResult,
    TrafficRun,
    simulate,
)
from vlm_operator.sizing.traffic.engine import Engine

QUICK = settings(max_examples=25, deadline=None)


@st.composite
def runs(draw: st.DrawFn) -> TrafficRun:
    patches = draw(st.integers(4, 400)) * 4
    tokens = patches // 4
    image = ImageWork(
        megapixels=patches * 196 / 1e6, patches=patches, span=patches, embeddings=tokens, prompt_tokens=tokens + 2
    )
    output = draw(st.integers(1, 200))
    kind = RequestKind(
        weight=1,
        text=Lengths.between(1, draw(st.integers(1, 600))),
        output=Lengths.between(1, output),
        images=(image,) * draw(st.integers(0, 3)),
    )
    longest = 600 + output + 3 * (tokens + 2) + draw(st.integers(0, 64))
    block = draw(st.sampled_from((16, 32)))
    limits = ServerLimits(
        max_num_seqs=draw(st.integers(1, 32)),
        max_num_batched_tokens=draw(st.integers(64, 2048)),
        kv=KVBlocks(total=-(-longest * draw(st.integers(1, 6)) // block) + 1, block_tokens=block),
        encoder_tokens=draw(st.integers(1, 4)) * tokens,
        preprocess_workers=draw(st.integers(1, 4)),
        processor_cache_patches=draw(st.sampled_from((0, 1000, 10**6))),
        prefix_caching=draw(st.booleans()),
    )
    clients = draw(st.integers(1, 12))
    loop = ClosedLoop(clients=clients, requests=3 * clients)
    arrivals = draw(st.one_of(st.just(loop), st.floats(0.2, 4).map(lambda rate: Poisson(rate=rate))))
    mix = RequestMix(
        kinds=(kind,),
        shared_prefix_tokens=draw(st.sampled_from((0, 40))),
        repeat_share=draw(st.sampled_from((0.0, 0.5, 1.0))),
    )
    return TrafficRun(mix=mix, arrivals=arrivals, limits=limits, seconds=20.0)


def outcome(run: TrafficRun, costs: LinearCosts | None = None, seed: int = 7) -> TrafficResult:
    return simulate(run, costs or LinearCosts(), Random(seed))  # noqa: S311 - traffic, not secrets


@QUICK
@given(runs(), st.integers(0, 1000))
def test_the_same_seed_gives_the_same_result(run: TrafficRun, seed: int) -> None:
    assert outcome(run, seed=seed) == outcome(run, seed=seed)


@QUICK
@given(runs())
def test_every_request_that_fits_ends_and_no_figure_is_impossible(run: TrafficRun) -> None:
    result = outcome(run)
    assert result.rejected == 0
    if isinstance(run.arrivals, ClosedLoop):
        assert result.requests == run.arrivals.requests
    for latency in (result.ttft, result.tpot, result.total):
        values = list(latency.percentiles.values())
        assert values == sorted(values)
        assert min([latency.mean, *values]) >= 0
    assert 0 <= result.utilisation <= 1
    assert 0 <= result.kv_usage <= 1
    assert result.ttft.percentiles[99] <= result.total.percentiles[99] + 1e-9


@QUICK
@given(runs())
def test_a_closed_loop_keeps_littles_law(run: TrafficRun) -> None:
    clients = 4
    closed = replace(run, arrivals=ClosedLoop(clients=clients, requests=40))
    result = outcome(closed)
    # Clients run out of requests at the end, so fewer than all are in the system on average, never more.
    in_system = result.requests_per_second * result.total.mean
    assert in_system <= clients * (1 + 1e-6)
    assert in_system > clients / 4


@QUICK
@given(runs())
def test_no_request_is_faster_than_alone(run: TrafficRun) -> None:
    costs = LinearCosts()
    result = outcome(run, costs)
    assert result.tpot.percentiles[50] >= costs.floor - 1e-12 or result.requests == 0 or result.tpot.mean == 0
    if result.requests:
        assert result.ttft.mean >= costs.floor


@QUICK
@given(runs(), st.floats(1.1, 4.0))
def test_slower_steps_never_end_a_lone_client_sooner(run: TrafficRun, factor: float) -> None:
    lone = replace(run, arrivals=ClosedLoop(clients=1, requests=6))
    slower = LinearCosts(floor=0.005 * factor, token=1e-5 * factor, pair=1e-9 * factor, context=1e-8 * factor)
    assert outcome(lone, slower).total.mean >= outcome(lone).total.mean


@QUICK
@given(runs())
def test_a_lone_client_never_waits_and_is_never_preempted(run: TrafficRun) -> None:
    result = outcome(replace(run, arrivals=ClosedLoop(clients=1, requests=8)))
    assert result.preemptions == 0
    assert result.binding in {"none", "batch tokens", "encoder budget"}


@QUICK
@given(runs())
def test_leaps_over_decode_steps_give_what_single_steps_give(run: TrafficRun) -> None:
    leaps = outcome(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "_steps_with_blocks", lambda _self, _steps: 1)
        steps = outcome(run)
    assert steps.preemptions == leaps.preemptions
    for name in ("ttft", "tpot", "total"):
        assert getattr(steps, name).mean == pytest.approx(getattr(leaps, name).mean, rel=1e-6)
    assert steps.kv_usage == pytest.approx(leaps.kv_usage, rel=0.2, abs=0.02)
