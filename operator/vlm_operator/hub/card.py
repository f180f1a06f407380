"""The files of one model -> the card that the planner takes, as if the model stood in the catalogue. Pure.

Files are data: ``auto_map`` and other names of code are carried along and never followed. Called for each source.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from vlm_operator.api import names
from vlm_operator.catalogue.types import ModelCard, Provenance
from vlm_operator.hub.class_defaults import complete_config
from vlm_operator.hub.mistral import config_of_params
from vlm_operator.hub.plausible import find_implausible
from vlm_operator.hub.types import (
    CONFIG,
    MISTRAL_CONFIG,
    PREPROCESSOR,
    PROCESSOR,
    QUANTISATION,
    VIDEO_PREPROCESSOR,
    ModelFiles,
    SourceRefusal,
)
from vlm_operator.sizing.shape import ARCHITECTURES
from vlm_operator.sizing.tokens import BUILDERS

CERTAINTY: Final = "real-file"


def describe_model(model_id: str, files: ModelFiles) -> ModelCard | SourceRefusal:
    """Return the card of the model that ``files`` describe, or what they lack."""
    config = read_config(files.documents)
    if config is None:
        wanted = f"{CONFIG}, or {MISTRAL_CONFIG} with a vision_encoder"
        return _invalid(model_id, files, f"has no {wanted}, so nothing says how the model is built")
    processor = merge_processor(files.documents)
    implausible = next(chain(find_implausible(config), find_implausible(processor)), None)
    if implausible is not None:
        return _invalid(model_id, files, f"has a configuration whose {implausible}")
    architecture = _architecture(config)
    if architecture is None:
        return _invalid(model_id, files, f"has a {CONFIG} without architectures, so the engine has no class for it")
    completed, classes = complete_config(config)
    processor_files = [name for name in (PREPROCESSOR, PROCESSOR, VIDEO_PREPROCESSOR) if name in files.documents]
    config_file = CONFIG if CONFIG in files.documents else MISTRAL_CONFIG
    return ModelCard(
        id=model_id,
        architecture=architecture,
        config=completed,
        config_provenance=_provenance(files, (config_file,), classes),
        processor=processor,
        processor_provenance=_provenance(files, processor_files or [config_file]),
        parameters=_count_parameters(files),
        parameters_provenance=_provenance(files, ("safetensors headers",)) if files.tensors else None,
        dtype=str(completed.get("dtype") or completed.get("torch_dtype") or "bfloat16"),
        served=True,
        revision=files.revision,
        tensors=files.tensors,
    )


def read_config(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the configuration that the engine would take: config.json, else Mistral's params.json in its words.

    The quantisation of older exports stands in a file of its own.
    """
    if CONFIG not in documents:
        params = documents.get(MISTRAL_CONFIG)
        return None if params is None else config_of_params(params)
    config = dict(documents[CONFIG])
    if QUANTISATION in documents and not config.get("quantization_config"):
        config["quantization_config"] = {"quant_method": "modelopt", **documents[QUANTISATION]}
    return config


def merge_processor(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of all processor files as one document, as the engine gives them precedence.

    A section ``image_processor`` of processor_config.json replaces preprocessor_config.json, and ``video_processor``
    replaces video_preprocessor_config.json (transformers 5.20.2 ``image_processing_base.py``,
    ``video_processing_utils.py``).
    """
    processor = dict(documents.get(PROCESSOR, {}))
    if not isinstance(processor.get("image_processor"), Mapping):
        processor |= documents.get(PREPROCESSOR, {})
    video = documents.get(VIDEO_PREPROCESSOR)
    if video is not None and not isinstance(processor.get("video_processor"), Mapping):
        processor["video_processor"] = dict(video)
    return processor


def _architecture(config: Mapping[str, Any]) -> str | None:
    """Return the first named architecture that is known, else the first that is named."""
    listed = config.get("architectures")
    found = [str(name) for name in listed] if isinstance(listed, list) else []
    known = [name for name in found if name in ARCHITECTURES or name in BUILDERS]
    return next(iter(known or found), None)


def _count_parameters(files: ModelFiles) -> int | None:
    if not files.tensors:
        return None
    total = 0
    for tensor in files.tensors:
        elements = 1
        for side in tensor.shape:
            elements *= side
        total += elements
    return total


def _provenance(files: ModelFiles, parts: Sequence[str], classes: Sequence[str] = ()) -> Provenance:
    where = f"{files.origin}@{files.revision}" if files.revision else files.origin
    sources = [f"{where}: {part}" for part in parts]
    sources += [f"class defaults of transformers 5.20.2: {name}" for name in classes]
    return Provenance(source=tuple(sources), certainty=CERTAINTY)


def _invalid(model_id: str, files: ModelFiles, why: str) -> SourceRefusal:
    message = f"{model_id}: {files.origin} {why}; give the model's own files, or choose another model"
    return SourceRefusal(reason=names.REASON_MODEL_FILES_INVALID, message=message)
