"""The latency model: what each phase depends on, and that measured kernels stand behind it."""

from dataclasses import replace
from math import inf, isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_operator.catalogue.load import all_gpus, find_gpu, find_model, latency_calibration, model_ids
from vlm_operator.sizing.inventory import GpuKind, kind_from_card
from vlm_operator.sizing.latency import (
    Layout,
    Replica,
    RequestWork,
    StepModel,
    decode_step_seconds,
    encode_seconds,
    percentiles_seconds,
    prefill_seconds,
    preprocess_seconds,
    queue_seconds,
    request_seconds,
    requests_per_minute,
    step_model,
    with_interval,
)
from vlm_operator.sizing.shape import ModelShape, read_shape

QUICK = settings(max_examples=40, deadline=None)
QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"
H100 = "h100-80gb-sxm"
PHOTO = RequestWork(megapixels=1.0, patches=5120, prompt_tokens=1480, output_tokens=200)


def shape_of(model_id: str) -> ModelShape:
    card = find_model(model_id)
    shape = read_shape(card.architecture, card.config)
    assert isinstance(shape, ModelShape)
    return shape


def gpu(name: str) -> GpuKind:
    return kind_from_card(find_gpu(name))


def costs(model_id: str = QWEN, name: str = H100, ranks: int = 1, kv_dtype: str = "auto") -> StepModel:
    return step_model(shape_of(model_id), Layout(gpu=gpu(name), ranks=ranks, kv_dtype=kv_dtype), latency_calibration())


def replica(model_id: str = QWEN, name: str = H100, ranks: int = 1) -> Replica:
    return Replica(costs=costs(model_id, name, ranks))


def test_decoding_is_bound_by_reading_the_weights() -> None:
    """Qwen2.5-VL-7B reads 14.1 GB a token: 4.2 ms at the datasheet's 3.35 TB/s, and no kernel is faster."""
    step = decode_step_seconds(replica(), replace(PHOTO, prompt_tokens=100, output_tokens=10), 1)
    assert 14.1e9 / 3.35e12 < step < 2 * 14.1e9 / 3.35e12


def test_prefill_is_bound_by_multiplying() -> None:
    """8,192 tokens through 7.07 billion parameters are 116 TFLOP: 117 ms at the datasheet's 989 TFLOPS."""
    seconds = prefill_seconds(replica(), replace(PHOTO, prompt_tokens=8192))
    assert 0.117 < seconds < 0.117 / 0.5


@pytest.mark.parametrize(
    ("slower", "faster"), [("h100-80gb-sxm", "h200-sxm"), ("h200-sxm", "b200-sxm"), ("l4", "l40s")]
)
def test_more_bandwidth_decodes_faster(slower: str, faster: str) -> None:
    assert decode_step_seconds(replica(name=faster), PHOTO, 8) < decode_step_seconds(replica(name=slower), PHOTO, 8)


def test_ranks_divide_the_work_but_not_the_launches() -> None:
    steps = [decode_step_seconds(replica("Qwen/Qwen2.5-VL-72B-Instruct", ranks=ranks), PHOTO, 8) for ranks in (2, 4, 8)]
    assert steps[0] > steps[1] > steps[2] > steps[0] / 4


def test_prompts_gain_nothing_from_ranks_without_a_fast_link() -> None:
    one, four = (prefill_seconds(replica("Qwen/Qwen2.5-VL-3B-Instruct", "l40s", ranks), PHOTO) for ranks in (1, 4))
    assert four > one


@pytest.mark.parametrize(
    ("plain", "small"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct-AWQ"),
        ("Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3-VL-8B-Instruct-FP8"),
        ("google/gemma-4-31B-it", "nvidia/Gemma-4-31B-IT-NVFP4"),
    ],
)
def test_quantised_weights_decode_faster(plain: str, small: str) -> None:
    name = "b200-sxm"
    assert decode_step_seconds(replica(small, name), PHOTO, 4) < decode_step_seconds(replica(plain, name), PHOTO, 4)


def test_weights_of_four_bits_are_multiplied_as_plain_ones() -> None:
    plain, small = (prefill_seconds(replica(model, "a100-80gb-sxm"), PHOTO) for model in (QWEN, QWEN + "-AWQ"))
    assert small > plain


def test_a_batch_reads_more_experts_than_a_single_token_and_never_all_of_them_twice() -> None:
    model = costs("Qwen/Qwen3-VL-30B-A3B-Instruct", "h200-sxm")
    one, many, most = (model.batch(tokens, tokens) for tokens in (1, 16, 128))
    assert many > 2 * one
    assert most < 12 * one
    dense = costs("Qwen/Qwen3-VL-32B-Instruct", "h200-sxm")
    assert dense.batch(16, 16) < 1.3 * dense.batch(1, 1)


def test_window_layers_stop_growing_with_the_context() -> None:
    model = costs("google/gemma-3-27b-it", "h200-sxm")
    near = model.decode_attention(1, 1024) - model.decode_attention(1, 512)
    far = model.decode_attention(1, 60_512) - model.decode_attention(1, 60_000)
    assert far < near / 3


def test_a_latent_cache_is_read_whole_by_every_rank() -> None:
    one, eight = (costs("moonshotai/Kimi-VL-A3B-Instruct", "h200-sxm", ranks) for ranks in (1, 8))
    assert one.decode_attention(1, 10_000) == pytest.approx(eight.decode_attention(1, 10_000))


def test_recurrent_layers_read_the_same_whatever_the_context() -> None:
    hybrid, dense = costs("Qwen/Qwen3.5-9B", "h200-sxm"), costs("Qwen/Qwen3-VL-8B-Instruct", "h200-sxm")
    grows = [model.decode_attention(1, 50_000) - model.decode_attention(1, 1_000) for model in (hybrid, dense)]
    assert grows[0] < grows[1] / 2


def test_an_fp8_cache_is_read_faster_where_contexts_are_long() -> None:
    plain, small = (costs(name="b200-sxm", kv_dtype=dtype) for dtype in ("auto", "fp8"))
    assert small.decode_attention(64, 64 * 30_000) < 0.7 * plain.decode_attention(64, 64 * 30_000)


def test_windowed_towers_grow_slower_than_the_square_of_the_patches() -> None:
    """Qwen2.5-VL attends over the whole image in four layers of 32; Qwen2-VL in all 32."""
    windowed, whole = replica(), replica("Qwen/Qwen2-VL-7B-Instruct")
    large, small = replace(PHOTO, patches=40_000.0), replace(PHOTO, patches=4_000.0)
    growth = [encode_seconds(model, large) / encode_seconds(model, small) for model in (windowed, whole)]
    assert growth[0] < growth[1]


def test_tiles_are_cheaper_than_one_image_of_as_many_patches() -> None:
    model = replica("OpenGVLab/InternVL3-8B")
    whole = replace(PHOTO, patches=13 * 1024.0)
    assert encode_seconds(model, replace(whole, span=1024)) < encode_seconds(model, whole)


def test_images_are_shared_out_among_ranks_or_cut_across_them() -> None:
    shape, name = shape_of("Qwen/Qwen3-VL-32B-Instruct"), gpu("h200-sxm")
    cut, dealt = (
        step_model(shape, Layout(gpu=name, ranks=4, whole_images=whole), latency_calibration())
        for whole in (False, True)
    )
    one = (5000, 5000**2, 1)
    four = (20_000, 4 * 5000**2, 4)
    assert dealt.encode(*one) > cut.encode(*one)
    assert dealt.encode(*four) == pytest.approx(dealt.encode(*one))
    assert dealt.encode(*four) < cut.encode(*four)


def test_preprocessing_grows_with_what_is_sent_and_with_what_is_kept() -> None:
    base = preprocess_seconds(replica(), PHOTO)
    assert preprocess_seconds(replica(), replace(PHOTO, megapixels=12.0)) > base
    assert preprocess_seconds(replica(), replace(PHOTO, patches=20_000.0)) > base
    text = RequestWork(megapixels=0, patches=0, prompt_tokens=100, output_tokens=10)
    assert preprocess_seconds(replica(), text) < base


def test_the_evidence_tells_runs_from_kernels_and_kernels_from_a_datasheet() -> None:
    names = {"h100-80gb-sxm": "runs", "b300-sxm": "kernels", "l40s": "kernels", "l4": "datasheet", "gb300": "datasheet"}
    assert {name: costs(name=name).speed.evidence for name in names} == names


def test_less_evidence_has_a_wider_interval() -> None:
    calibration = latency_calibration()
    for quantity in ("ttft", "tpot", "total"):
        widths = []
        for evidence in ("runs", "kernels", "datasheet"):
            estimate = with_interval(1.0, quantity, evidence, calibration)
            assert estimate.low <= estimate.value <= estimate.high
            widths.append(estimate.high / estimate.low)
        assert widths == sorted(widths)


def test_every_model_has_finite_seconds_on_every_card() -> None:
    cards = [kind_from_card(card) for card in all_gpus() if card.vendor == "nvidia"]
    shapes = [read_shape(card.architecture, card.config) for card in map(find_model, model_ids())]
    for number, shape in enumerate(shape for shape in shapes if isinstance(shape, ModelShape)):
        kind = cards[number % len(cards)]
        for ranks in (1, 8):
            model = Replica(costs=step_model(shape, Layout(gpu=kind, ranks=ranks), latency_calibration()))
            seconds = request_seconds(model, PHOTO, PHOTO, 16)
            assert isfinite(seconds.total), (shape.architecture, kind.id)
            assert 0 < seconds.tpot < seconds.ttft < seconds.total


@QUICK
@given(st.integers(1, 30_000), st.integers(1, 512), st.integers(1, 64))
def test_more_work_never_takes_less(tokens: int, rows: int, more: int) -> None:
    model = costs()
    # Kernels of larger tiles can be faster by a few per cent: the table's dips are kept.
    assert model.batch(tokens + more, rows) >= 0.9 * model.batch(tokens, rows)
    assert model.batch(tokens, rows + more) >= 0.9 * model.batch(tokens, rows)
    assert model.prefill_attention(tokens + more, rows) > model.prefill_attention(tokens, rows)
    assert model.decode_attention(rows, tokens + more) > model.decode_attention(rows, tokens)
    assert model.encode(tokens + more, tokens**2, 1) >= 0.9 * model.encode(tokens, tokens**2, 1)


@QUICK
@given(st.integers(1, 200))
def test_a_larger_batch_is_slower_for_each_and_faster_for_all(concurrency: int) -> None:
    model = replica()
    alone, crowd = request_seconds(model, PHOTO, PHOTO, 1), request_seconds(model, PHOTO, PHOTO, concurrency + 1)
    assert crowd.tpot > alone.tpot
    assert requests_per_minute(model, PHOTO, concurrency + 1) > requests_per_minute(model, PHOTO, 1)


@QUICK
@given(st.sampled_from((512, 2048, 8192)), st.integers(10, 20_000), st.integers(1, 2000), st.integers(1, 128))
def test_more_requests_at_once_are_never_served_much_slower(step: int, prompt: int, output: int, running: int) -> None:
    """Also where prompts queue: there the steps are full of chunks, and what is served stays."""
    model, work = replica().with_steps(step), replace(PHOTO, prompt_tokens=prompt, output_tokens=output)
    served = requests_per_minute(model, work, running)
    assert requests_per_minute(model, work, 2 * running) >= 0.9 * served


@QUICK
@given(st.sampled_from((50, 95, 99)), st.floats(0, 50), st.floats(0, 50))
def test_prompts_queue_longer_the_more_arrive_and_without_end_where_too_many_do(
    percentile: int, one: float, other: float
) -> None:
    model, works = replica(), dict.fromkeys((50, 95, 99), PHOTO)
    fewer, more = (queue_seconds(model, works, PHOTO, rate, percentile) for rate in sorted((one, other)))
    assert 0 <= fewer <= more
    assert queue_seconds(model, works, PHOTO, 0, percentile) == 0
    assert queue_seconds(model, works, PHOTO, 1.01 / model.alone(PHOTO)[1], percentile) == inf


def test_percentiles_are_of_the_mix() -> None:
    works = {50: PHOTO, 95: replace(PHOTO, prompt_tokens=4000), 99: replace(PHOTO, prompt_tokens=9000)}
    found = percentiles_seconds(replica(), works, PHOTO, 4)
    assert found[50].ttft < found[95].ttft < found[99].ttft
    assert found[50].tpot == found[99].tpot
