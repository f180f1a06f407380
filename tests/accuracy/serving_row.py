"""A published serving row as the simulation takes it: model, GPU, layout, requests and limits of one replica."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.accuracy.benchmarks import PublishedRow
from tests.accuracy.fields import Fields, UnclearRowError, count, number, part, positive, words
from tests.accuracy.gpus import served_gpu
from tests.accuracy.kv_room import kv_room
from tests.accuracy.memory_logs import read_flags
from tests.accuracy.models import PublishedModel, find_published
from tests.accuracy.releases import FIRST_SCORED, Version, parse_version, release_of
from vlm_operator.catalogue.load import find_model
from vlm_operator.errors import CatalogueError
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.shape import ShapeRefusal, read_shape
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens
from vlm_operator.sizing.traffic import ImageWork, Lengths, RequestKind, ServerLimits

PRESENT: Version = (0, 33)
"""The release that the product knows; a row that names none is taken for one of it."""
W4A16: Mapping[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
        }
    },
    "ignore": ["lm_head", "re:.*visual.*", "re:.*vision.*"],
}
"""How the publisher's checkpoints of that name are stored: groups of 128, towers and output plain."""

IMAGE_TOKENS = ("visual_tokens", "visual_tokens_derived", "visual_tokens_mean", "visual_tokens_mean_derived")
INPUT_TOKENS = ("total_input_tokens", "total_input_tokens_mean_derived", "input_tokens", "prompt_tokens")
OUTPUT_TOKENS = ("out_tokens", "output_tokens", "output_tokens_mean")
MOST_IMAGES = 1000
LONGEST_SIDE = 100_000
RANDOM_TEXT = r"random text (\d+)/(\d+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRow:
    """One row's deployment and requests.

    Attributes:
        replicas: Servers of ``ranks`` GPUs each that share the load.
        megapixels: Of one image as sent, 0 where there is none.
    """

    model: PublishedModel
    gpu: GpuKind
    ranks: int
    replicas: int
    release: Version
    kind: RequestKind
    limits: ServerLimits
    megapixels: float


def read_serving(row: PublishedRow) -> ServingRow:
    """Return what a row states.

    Raises:
        UnclearRowError: Something that the simulation needs is missing or cannot be read.
    """
    fields = flat_fields(row)
    lacking = [name for name in ("model", "gpu") if not words(fields, name)]
    if lacking:
        raise UnclearRowError(f"it does not state {' and '.join(lacking)}")
    model, gpu = model_of(fields), served_gpu(words(fields, "gpu"))
    if model is None:
        raise UnclearRowError("the model, or how its weights are stored, is not known")
    if gpu is None or re.search(r"\bnodes\b", words(fields, "gpu")):
        raise UnclearRowError("the GPU is not known, or the replica spans several nodes")
    ranks, replicas = _layout(fields)
    if model.shape.text.heads % ranks:
        raise UnclearRowError(f"tp {ranks} does not divide the model's {model.shape.text.heads} heads")
    images = _images(fields, model)
    kind = RequestKind(weight=1, text=_text(fields, images), output=_output(fields), images=images)
    release = release_stated(fields)
    return ServingRow(
        model=model,
        gpu=gpu,
        ranks=ranks,
        replicas=replicas,
        release=release,
        kind=kind,
        limits=_limits(fields, model, gpu, (ranks, release), kind),
        megapixels=images[0].megapixels if images else 0.0,
    )


def flat_fields(row: PublishedRow) -> Fields:
    """Return the row's fields with those of its conditions, its own first."""
    return {**part(row, "conditions"), **{name: value for name, value in row.items() if value is not None}}


def release_stated(fields: Fields) -> Version:
    """Return the engine's release."""
    return parse_version(words(fields, "vllm", "engine")) or PRESENT


def model_of(fields: Fields) -> PublishedModel | None:
    """Return the model of a row in the format that the row states."""
    name, stated = words(fields, "model"), words(fields, "dtype").lower()
    if stated in {"bf16", "bfloat16"}:
        return find_published(name)
    if stated != "w4a16":
        return find_published(f"{name} {stated}")
    plain = find_published(name)
    try:
        card = find_model(name)
    except CatalogueError:
        return None
    shape = read_shape(card.architecture, {**card.config, "quantization_config": W4A16})
    return None if plain is None or isinstance(shape, ShapeRefusal) else replace(plain, shape=shape)


def _layout(fields: Fields) -> tuple[int, int]:
    """Return the GPUs of a replica and the replicas: those that a throughput was measured on share it."""
    counts = part(fields, "gpu_counts")
    gpus = count(counts, "throughput") or count(fields, "gpu_count")
    ranks = count(fields, "tp") or count(counts, "single_stream")
    replicas = count(fields, "dp", "replicas")
    if ranks is None and gpus is not None and replicas is not None:
        ranks = max(1, gpus // replicas)
    if ranks is None and gpus in {None, 1}:
        ranks = 1
    if ranks is None:
        raise UnclearRowError(f"it does not state how its {gpus} GPUs share the model (tp)")
    return ranks, replicas or max(1, (gpus or ranks) // ranks)


def _images(fields: Fields, model: PublishedModel) -> tuple[ImageWork, ...]:
    """Return the images of one request, of their size or of their tokens."""
    stated, size = number(fields, "images_per_request"), fields.get("image_size")
    tokens = None if size else positive(fields, *IMAGE_TOKENS)
    if stated == 0 or (stated is None and not size and tokens is None):
        return ()
    images = count(fields, "images_per_request") or 1
    if images > MOST_IMAGES:
        raise UnclearRowError(f"more than {MOST_IMAGES} images of a request are not simulated")
    if not size and tokens is None:
        raise UnclearRowError("it does not state image size")
    if model.rule is None:
        raise UnclearRowError("how the model counts the tokens of an image is not known")
    if tokens is not None:
        return (_image_of_tokens(round(tokens / images), model),) * images
    return (_image_of_size(size, model.rule),) * images


def _image_of_size(size: object, rule: ImageRule) -> ImageWork:
    found = re.findall(r"\d+", " ".join(map(str, size)) if isinstance(size, list) else str(size))
    if len(found) != 2 or not all(0 < int(side) < LONGEST_SIDE for side in found):
        raise UnclearRowError(f"image_size is {size!r}, which is no width and height")
    width, height = map(int, found)
    counted = rule.count_image(width, height)
    if not isinstance(counted, ImageTokens):
        raise UnclearRowError(f"its images are refused: {counted.message}")
    return ImageWork(
        megapixels=width * height / 1e6,
        patches=counted.vit_patches,
        span=-(-counted.vit_patches // (counted.tiles or 1)),
        embeddings=counted.embed_tokens,
        prompt_tokens=counted.prompt_tokens,
    )


def _image_of_tokens(tokens: int, model: PublishedModel) -> ImageWork:
    """Return an image of so many tokens, sent in the size that the tower sees."""
    vision = model.shape.vision
    patches = max(1, tokens) * vision.merge**2
    pixels = patches * vision.patch_size**2 / 1e6
    return ImageWork(megapixels=pixels, patches=patches, span=patches, embeddings=tokens, prompt_tokens=tokens)


def _text(fields: Fields, images: tuple[ImageWork, ...]) -> Lengths:
    said = re.search(RANDOM_TEXT, words(fields, "workload"))
    stated = int(said[1]) if said else number(fields, "text_in", "text_tokens")
    if stated is None:
        total = positive(fields, *INPUT_TOKENS)
        stated = None if total is None else max(0, total - sum(image.prompt_tokens for image in images))
    if stated is None and not images:
        raise UnclearRowError("it states neither image size nor tokens")
    return Lengths.fixed(max(0, round(stated or 0)))


def _output(fields: Fields) -> Lengths:
    """Return the output tokens; where the results show fewer in the mean, some ended early, anywhere."""
    said = re.search(RANDOM_TEXT, words(fields, "workload"))
    stated = float(said[2]) if said else positive(fields, *OUTPUT_TOKENS)
    if stated is None:
        raise UnclearRowError("it does not state out tokens")
    results = part(fields, "results")
    tokens, requests = positive(results, "out_tok_s"), positive(results, "req_s")
    early = 2 * (1 - tokens / requests / stated) if tokens and requests else 0.0
    if not 0 < early < 1:
        return Lengths.fixed(round(stated))
    return Lengths(points=((0.0, 1), (early, stated), (1.0, stated)))


def _limits(
    fields: Fields, model: PublishedModel, gpu: GpuKind, layout: tuple[int, Version], kind: RequestKind
) -> ServerLimits:
    ranks, release = layout
    stated = {**fields, "tp": ranks, "vllm": words(fields, "vllm", "engine")}
    conditions = read_flags(stated, gpu, release_of(release))
    sequences = count(fields, "max_num_seqs") or conditions.max_num_seqs
    batched = count(fields, "max_num_batched_tokens") or conditions.max_num_batched_tokens
    prompt = kind.text.at(1) + sum(image.prompt_tokens for image in kind.images)
    output = kind.output.at(1)
    if prompt + output > model.context:
        raise UnclearRowError(f"its {prompt + output} tokens exceed the model's context of {model.context}")
    if release < FIRST_SCORED:  # the engine before V1 took prompts whole
        batched = max(batched, prompt)
    length = conditions.max_model_len or min(model.context, 2 * (prompt + output))
    conditions = replace(
        conditions, max_num_seqs=sequences, max_num_batched_tokens=batched, max_model_len=length, video_limit=0
    )
    room = kv_room(conditions, model)
    if room.blocks_for(prompt + output) > room.total:
        raise UnclearRowError("its weights leave no room for the KV cache of one request")
    largest = max((image.embeddings for image in kind.images), default=0)
    return ServerLimits(
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        kv=room,
        encoder_tokens=max(batched, largest),
        prefix_caching=False,
    )
