"""Traffic through one replica, reckoned by hand where steps cost straight lines."""

from dataclasses import replace
from itertools import takewhile
from random import Random

import pytest

from tests.support.step_costs import LinearCosts
from vlm_operator.sizing.traffic import (
    Bursty,
    ClosedLoop,
    Goal,
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

NOTHING = LinearCosts(token=0, pair=0, context=0, patch=0, megapixel=0, prefill=0, front=0)
"""Every step takes the floor of 5 ms."""
LIMITS = ServerLimits(max_num_seqs=64, max_num_batched_tokens=1000, kv=KVBlocks(total=10_000), encoder_tokens=500)
IMAGE = ImageWork(megapixels=1.0, patches=1600, span=1600, embeddings=400, prompt_tokens=400)


def run(
    text: int = 100, output: int = 10, *, images: tuple[ImageWork, ...] = (), limits: ServerLimits = LIMITS
) -> TrafficRun:
    kind = RequestKind(weight=1, text=Lengths.fixed(text), output=Lengths.fixed(output), images=images)
    return TrafficRun(mix=RequestMix(kinds=(kind,)), arrivals=ClosedLoop(clients=1, requests=1), limits=limits)


def outcome(wanted: TrafficRun, costs: LinearCosts = NOTHING, seed: int = 3) -> TrafficResult:
    return simulate(wanted, costs, Random(seed))  # noqa: S311 - traffic, not secrets


def test_a_lone_request_takes_one_step_for_its_prompt_and_one_for_each_later_token() -> None:
    result = outcome(run(output=10))
    assert result.ttft.mean == pytest.approx(0.005, rel=1e-3)
    assert result.tpot.mean == pytest.approx(0.005, rel=1e-3)
    assert result.total.mean == pytest.approx(0.050, rel=1e-3)
    assert result.binding == "none"


@pytest.mark.parametrize(("prompt", "steps"), [(1, 1), (1000, 1), (1001, 2), (2500, 3)])
def test_a_prompt_takes_a_step_for_each_chunk(prompt: int, steps: int) -> None:
    assert outcome(run(text=prompt)).ttft.mean == pytest.approx(0.005 * steps, rel=1e-3)


def test_prefills_of_others_lengthen_the_time_between_tokens() -> None:
    alone = outcome(replace(run(text=900, output=100), arrivals=ClosedLoop(clients=1, requests=20)), LinearCosts())
    crowd = outcome(replace(run(text=900, output=100), arrivals=ClosedLoop(clients=8, requests=160)), LinearCosts())
    assert crowd.tpot.mean > alone.tpot.mean
    assert crowd.ttft.mean > alone.ttft.mean
    assert crowd.output_tokens_per_second > 4 * alone.output_tokens_per_second


@pytest.mark.parametrize(("images", "steps"), [(1, 1), (2, 2), (4, 4)])
def test_an_image_beyond_the_encoder_budget_of_a_step_waits_for_the_next(images: int, steps: int) -> None:
    limits = replace(LIMITS, max_num_batched_tokens=8000)
    assert outcome(run(images=(IMAGE,) * images, limits=limits)).ttft.mean == pytest.approx(0.005 * steps, rel=0.05)


def test_an_image_that_the_encoder_never_takes_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="400 tokens exceeds the encoder budget of 300"):
        outcome(run(images=(IMAGE,), limits=replace(LIMITS, encoder_tokens=300)))


def test_preprocessing_comes_before_the_first_step_and_queues_for_its_workers() -> None:
    slow = replace(NOTHING, megapixel=0.1)
    both = replace(run(images=(IMAGE,)), arrivals=ClosedLoop(clients=2, requests=2))
    one_worker = outcome(both, slow)
    two_workers = outcome(replace(both, limits=replace(LIMITS, preprocess_workers=2)), slow)
    assert two_workers.preprocess_wait == pytest.approx(0.1, rel=0.01)
    assert one_worker.preprocess_wait == pytest.approx(0.15, rel=0.01)
    assert one_worker.binding == "preprocessing"


def test_a_repeated_image_is_prepared_and_encoded_once_and_its_prefill_is_spared() -> None:
    costs = replace(NOTHING, megapixel=0.1, patch=1e-4)
    twice = replace(run(images=(IMAGE,)), arrivals=ClosedLoop(clients=1, requests=2))
    repeating = replace(twice.mix, repeat_share=1.0)
    cached = replace(LIMITS, processor_cache_patches=10_000)
    first_only = outcome(replace(twice, mix=repeating, limits=cached), costs)
    every_time = outcome(twice, costs)
    assert every_time.ttft.mean - first_only.ttft.mean == pytest.approx((0.1 + 0.16) / 2, rel=0.05)


def test_the_prefill_of_a_repeated_image_is_spared_only_with_prefix_caching() -> None:
    costs = replace(NOTHING, token=1e-4)
    mix = RequestMix(kinds=run(images=(IMAGE,)).mix.kinds, repeat_share=1.0)
    twice = replace(run(images=(IMAGE,)), mix=mix, arrivals=ClosedLoop(clients=1, requests=50))
    without = replace(twice, limits=replace(LIMITS, prefix_caching=False))
    spared = outcome(without, costs).ttft.mean - outcome(twice, costs).ttft.mean
    assert spared == pytest.approx(400 * 1e-4 * 49 / 50, rel=0.02)


def test_a_shared_system_prompt_is_computed_once() -> None:
    costs = replace(NOTHING, token=1e-4)
    kinds = run(text=100).mix.kinds
    loop = ClosedLoop(clients=1, requests=100)
    plain = outcome(replace(run(), mix=RequestMix(kinds=kinds), arrivals=loop), costs)
    shared = outcome(replace(run(), mix=RequestMix(kinds=kinds, shared_prefix_tokens=320), arrivals=loop), costs)
    assert shared.ttft.mean - plain.ttft.mean == pytest.approx(320 * 1e-4 / 100, rel=0.05)


def test_requests_wait_for_blocks_and_are_preempted_when_their_outputs_outgrow_them() -> None:
    tight = replace(LIMITS, kv=KVBlocks(total=40))
    four = replace(run(text=100, output=200, limits=tight), arrivals=ClosedLoop(clients=4, requests=12))
    result = outcome(four)
    assert result.preemptions > 0
    assert result.requests == 12
    assert result.binding == "KV cache"
    assert outcome(replace(four, limits=LIMITS)).preemptions == 0


def test_requests_beyond_max_num_seqs_wait() -> None:
    result = outcome(
        replace(run(output=50, limits=replace(LIMITS, max_num_seqs=2)), arrivals=ClosedLoop(clients=6, requests=60))
    )
    assert result.binding == "running sequences"
    assert result.queue == pytest.approx(4, rel=0.1)


def test_a_request_that_no_empty_replica_holds_is_rejected() -> None:
    result = outcome(run(text=2000, limits=replace(LIMITS, kv=KVBlocks(total=10))))
    assert (result.requests, result.rejected) == (0, 1)


def test_window_layers_hold_no_more_than_their_window() -> None:
    blocks = KVBlocks(total=1000, growing_groups=1, bounded_groups=5, bound_tokens=1024, state_blocks=2)
    assert blocks.blocks_for(160) == 10 + 5 * 11 + 2
    assert blocks.blocks_for(16_000) == 1000 + 5 * 65 + 2


def test_overload_is_told_from_a_burst() -> None:
    """A replica that decodes 64 sequences of 50 tokens at 5 ms a step ends some 200 requests per second."""
    base = replace(run(output=50, limits=replace(LIMITS, max_num_seqs=8)), seconds=120.0)
    assert not outcome(replace(base, arrivals=Poisson(rate=60.0))).sustainable
    assert outcome(replace(base, arrivals=Poisson(rate=10.0))).sustainable
    burst = Bursty(rate=10.0, peak=4.0, burst_share=0.1, burst_seconds=5.0)
    bursty = outcome(replace(base, arrivals=burst))
    assert bursty.sustainable
    assert bursty.ttft.percentiles[99] > outcome(replace(base, arrivals=Poisson(rate=10.0))).ttft.percentiles[99]


def test_overload_is_told_before_its_queue_is_longer_than_a_request() -> None:
    """64 sequences of 200 tokens at 5 ms a step end 64 requests per second."""
    base = replace(run(output=200), seconds=20.0)
    late = outcome(replace(base, arrivals=Poisson(rate=68.0)))
    assert late.ttft.percentiles[50] < late.total.percentiles[50]
    assert not late.sustainable
    assert outcome(replace(base, arrivals=Poisson(rate=58.0))).sustainable


def test_a_few_bursts_show_what_many_do() -> None:
    base = replace(run(output=50, limits=replace(LIMITS, max_num_seqs=8)))
    burst = Bursty(rate=10.0, peak=5.0, burst_share=0.1, burst_seconds=30.0)
    few, many = (outcome(replace(base, arrivals=burst, seconds=cycles * burst.cycle_seconds)) for cycles in (2, 20))
    assert few.ttft.percentiles[95] == pytest.approx(many.ttft.percentiles[95], rel=0.25)
    assert few.ttft.percentiles[95] > 10 * many.ttft.percentiles[50]


def test_goodput_counts_the_requests_that_keep_the_goal() -> None:
    steady = replace(run(output=50), arrivals=Poisson(rate=5.0), seconds=60.0)
    assert outcome(replace(steady, goal=Goal(ttft=1.0))).goodput == pytest.approx(outcome(steady).requests_per_second)
    assert outcome(replace(steady, goal=Goal(tpot=0.001))).goodput == 0


@pytest.mark.parametrize(
    "arrivals",
    [Poisson(rate=5.0), Bursty(rate=5.0, peak=3.0, burst_share=0.2, burst_seconds=10.0)],
    ids=["poisson", "bursty"],
)
def test_arrivals_keep_the_declared_rate(arrivals: Poisson | Bursty) -> None:
    times = list(takewhile(lambda time: time < 20_000, arrivals.times(Random(5))))  # noqa: S311 - traffic, not secrets
    assert times == sorted(times)
    assert len(times) / 20_000 == pytest.approx(5.0, rel=0.05)


def test_bursts_spread_counts_wider_than_independent_arrivals() -> None:
    def spread(arrivals: Poisson | Bursty) -> float:
        counts = [0] * 1000
        for time in takewhile(lambda time: time < 10_000, arrivals.times(Random(5))):  # noqa: S311 - traffic
            counts[int(time / 10)] += 1
        mean = sum(counts) / 1000
        return sum((count - mean) ** 2 for count in counts) / 1000 / mean

    assert spread(Poisson(rate=5.0)) == pytest.approx(1.0, abs=0.2)
    assert spread(Bursty(rate=5.0, peak=3.0, burst_share=0.2, burst_seconds=10.0)) > 5


def test_lengths_follow_their_quantiles() -> None:
    lengths = Lengths(points=((0.0, 10), (0.5, 100), (1.0, 600)))
    assert [lengths.at(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)] == [10, 55, 100, 350, 600]
    assert Lengths.fixed(7).at(0.3) == 7
