"""What a model source gives: files that were read as data, or the reason why there are none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.catalogue.types import StoredTensor

CONFIG: Final = "config.json"
MISTRAL_CONFIG: Final = "params.json"
PREPROCESSOR: Final = "preprocessor_config.json"
PROCESSOR: Final = "processor_config.json"
VIDEO_PREPROCESSOR: Final = "video_preprocessor_config.json"
QUANTISATION: Final = "hf_quant_config.json"
CONFIG_FILES: Final = (CONFIG, MISTRAL_CONFIG, PREPROCESSOR, PROCESSOR, VIDEO_PREPROCESSOR, QUANTISATION)
"""Every file that says how a model is built and how it takes images; code files are never read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The configuration files of one model.

    Attributes:
        documents: Content of each file that exists, by its name.
        tensors: Every tensor of the checkpoint, from the headers of its files; empty where they are not known.
        origin: Where the files come from, as messages and provenance name it.
        revision: The commit that they are of; empty where the source has none.
    """

    documents: Mapping[str, Mapping[str, Any]]
    tensors: tuple[StoredTensor, ...] = ()
    origin: str
    revision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRefusal:
    """Why a source gives no model: a CamelCase reason (``api.names``) and a message with the next step.

    ``transient`` marks what may be over when the same is asked again: a timeout, a hub that is down.
    """

    reason: str
    message: str
    transient: bool = False
