"""How fast an hour of traffic is simulated, and how that grows with the rate."""

from collections.abc import Callable, Iterator
from random import Random

from vlm_operator.catalogue.load import find_gpu, find_model, latency_calibration
from vlm_operator.sizing.inventory import kind_from_card
from vlm_operator.sizing.latency import Layout, step_model
from vlm_operator.sizing.shape import ModelShape, read_shape
from vlm_operator.sizing.traffic import (
    Bursty,
    ImageWork,
    KVBlocks,
    Lengths,
    Poisson,
    RequestKind,
    RequestMix,
    ServerLimits,
    TrafficRun,
    simulate,
)

PHOTO = ImageWork(megapixels=1.0, patches=5120, span=5120, embeddings=1280, prompt_tokens=1282)
LIMITS = ServerLimits(
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    kv=KVBlocks(total=40_000),
    encoder_tokens=8192,
    preprocess_workers=4,
    processor_cache_patches=1_000_000,
)
KIND = RequestKind(
    weight=1,
    text=Lengths.between(50, 500),
    output=Lengths(points=((0.0, 20), (0.5, 150), (1.0, 600))),
    images=(PHOTO,),
)


def traffic_actions() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is simulated and how: Qwen2.5-VL-7B on one H100, one image a request, a tenth of them repeated."""
    card = find_model("Qwen/Qwen2.5-VL-7B-Instruct")
    shape = read_shape(card.architecture, card.config)
    if not isinstance(shape, ModelShape):
        raise TypeError(shape.message)
    costs = step_model(shape, Layout(gpu=kind_from_card(find_gpu("h100-80gb-sxm"))), latency_calibration())
    mix = RequestMix(kinds=(KIND,), shared_prefix_tokens=64, repeat_share=0.1)
    burst = Bursty(rate=5.0, peak=4.0, burst_share=0.1, burst_seconds=20.0)
    for name, arrivals in (
        ("5 requests/s", Poisson(rate=5.0)),
        ("5 requests/s in bursts", burst),
        ("10 requests/s", Poisson(rate=10.0)),
    ):
        run = TrafficRun(mix=mix, arrivals=arrivals, limits=LIMITS)
        # The seed is the same every time, so that every run simulates the same requests.
        yield f"one hour of traffic: {name}", lambda run=run: simulate(run, costs, Random(1))  # type: ignore[misc]  # noqa: S311
