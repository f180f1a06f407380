"""Architectures that the engine knows, or knew, and that get no count or no plan: which, why, and what to do.

Each reason is one clause that follows the architecture's name; what to do follows it in the message. Source: the
engine's model registry and processors, and the public processors of the families.
"""

import difflib
from collections.abc import Collection, Mapping
from typing import Final

from vlm_operator.sizing.tokens.types import TokenRefusal

_GENERIC: Final = (
    "images go through whatever processor the checkpoint brings, so there is no one rule; name the checkpoint's own "
    "architecture, as its config.json does"
)
_OTHER_FAMILY: Final = "choose a model of another family"

DROPPED: Final[Mapping[str, str]] = {
    "MllamaForConditionalGeneration": "last release: 0.10.2",
    "DonutForConditionalGeneration": "last release: 0.10.2",
    "Phi4MultimodalForCausalLM": "last release: 0.12.0",
    "QWenLMHeadModel": "gone in 0.23",
    "QwenVLForConditionalGeneration": "gone in 0.23",
    "MiniMaxVL01ForConditionalGeneration": "gone in 0.23",
    "Tarsier2ForConditionalGeneration": "gone in 0.23",
    "TarsierForConditionalGeneration": "gone in 0.24",
    "MantisForConditionalGeneration": "gone in 0.24",
    "AyaVisionForConditionalGeneration": "gone in 0.24",
    "FuyuForCausalLM": "gone in 0.25",
    "ChameleonForConditionalGeneration": "gone in 0.28",
    "CheersForConditionalGeneration": "gone in 0.28",
    "HCXVisionForCausalLM": "gone in 0.28",
    "PrithviGeoSpatialMAE": "gone in 0.28, which has Terratorch instead",
    "Florence2ForConditionalGeneration": "now a plugin of its own",
}
"""Architectures that the engine dropped, and when."""

UNSERVABLE: Final[Mapping[str, str]] = {
    "OpenPanguVLForConditionalGeneration": "the checkpoints' code works up to transformers 4.57, and the engine's "
    f"image has 5.16.1 or newer; {_OTHER_FAMILY}",
    "MolmoForCausalLM": "the checkpoints' code works up to transformers 4.48, and the engine's image has 5.16.1 or "
    "newer; choose a Molmo2 checkpoint",
}
"""Architectures that the engine registers but cannot start on its own image, and why."""

UNCOUNTED: Final[Mapping[str, str]] = {
    "BailingMoeV3VLForConditionalGeneration": "the image processor comes with the checkpoint and is not public, and "
    f"the line break that it adds after an image merges with the text; {_OTHER_FAMILY}",
    "HCXVisionV2ForCausalLM": f"the image processor comes with the checkpoint and is not public; {_OTHER_FAMILY}",
    "MiniCPMOcrForConditionalGeneration": "small images are resized by what their pixels show, not by their size "
    "alone; choose a MiniCPM-V 4.6 or 4.7 checkpoint",
    "NVLM_D": "each tile has a tag in plain text, so that its tokens depend on the checkpoint's tokenizer; choose an "
    "InternVL checkpoint",
    "Ovis2ForConditionalGeneration": "this converted form would run on the engine's Transformers backend, whose "
    "images are not counted; take the original checkpoint, whose architecture is Ovis",
    "RadioMBartPrefixForCausalLM": "pages are packed by a processor that comes with the checkpoint and is not public; "
    "choose a Nemotron-Parse checkpoint of the architecture NemotronParseForConditionalGeneration",
    "Terratorch": "inputs are tensors of the checkpoint's own definition rather than images of a size; no plan is "
    "made for such models",
    "TransformersMultiModalEmbeddingModel": _GENERIC,
    "TransformersMultiModalForCausalLM": _GENERIC,
    "TransformersMultiModalForSequenceClassification": _GENERIC,
    "TransformersMultiModalMoEForCausalLM": _GENERIC,
}
"""Architectures that take images which cannot be counted, and why."""

_AUDIO: Final = (
    "AudioFlamingo3ForConditionalGeneration",
    "CohereAsrForConditionalGeneration",
    "FireRedASR2ForConditionalGeneration",
    "FunASRForConditionalGeneration",
    "FunAudioChatForConditionalGeneration",
    "GlmAsrForConditionalGeneration",
    "GraniteSpeechForConditionalGeneration",
    "GraniteSpeechPlusForConditionalGeneration",
    "MiDashengLMModel",
    "MoonshotKimiaForCausalLM",
    "MossAudioModel",
    "MossTranscribeDiarizeForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration",
    "Qwen3ASRForConditionalGeneration",
    "Qwen3ASRForcedAlignerForTokenClassification",
    "Qwen3ASRRealtimeGeneration",
    "UltravoxModel",
    "VibeVoiceAsrForConditionalGeneration",
    "VoxtralForConditionalGeneration",
    "VoxtralRealtimeGeneration",
    "WhisperForConditionalGeneration",
)

IMAGELESS: Final[Mapping[str, str]] = dict.fromkeys(_AUDIO, "audio") | {
    "LlavaNextVideoForConditionalGeneration": "video",
}
"""Multimodal architectures that take no images, and what they take."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "Step3p7FlashForCausalLM": "Step3p7ForConditionalGeneration",
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForConditionalGeneration",
}
"""Names that families go by elsewhere, and what the engine calls them."""


def refuse_dropped(architecture: str, model_id: str = "") -> TokenRefusal | None:
    """Return why the engine does not serve ``architecture``, or no more; None where it does, or is unknown.

    Its images can still be counted where there is a rule.
    """
    name = _name(architecture, model_id)
    if architecture in DROPPED:
        return TokenRefusal(
            reason="ArchitectureDropped",
            message=f"{name}: the engine dropped this architecture ({DROPPED[architecture]}), and plans are made for "
            f"0.33.0; {_OTHER_FAMILY}",
        )
    if architecture in UNSERVABLE:
        return TokenRefusal(
            reason="ArchitectureNotServable",
            message=f"{name}: the engine cannot start this architecture: {UNSERVABLE[architecture]}",
        )
    return None


def refuse_architecture(architecture: str, model_id: str, counted: Collection[str]) -> TokenRefusal:
    """Return why images of ``architecture``, which is none of ``counted``, get no count."""
    refusal = refuse_dropped(architecture, model_id)
    name = _name(architecture, model_id)
    if refusal is not None:
        return refusal
    if architecture in UNCOUNTED:
        return TokenRefusal(reason="ArchitectureNotCounted", message=f"{name}: {UNCOUNTED[architecture]}")
    if architecture in IMAGELESS:
        return TokenRefusal(
            reason="TakesNoImages",
            message=f"{name}: this architecture takes {IMAGELESS[architecture]} and no images; choose a model that "
            "takes images",
        )
    if architecture in OTHER_NAMES:
        return TokenRefusal(
            reason="UnknownArchitecture",
            message=f"{name}: the engine calls this architecture {OTHER_NAMES[architecture]}; give it that name",
        )
    near = ", ".join(difflib.get_close_matches(architecture, sorted(counted), n=3, cutoff=0.0))
    return TokenRefusal(
        reason="UnknownArchitecture",
        message=f"{name}: there is no counting rule for this architecture; there are {len(counted)} that have one, "
        f"nearest: {near} (all: docs/reference/architectures.md); choose a model of one of them",
    )


def _name(architecture: str, model_id: str) -> str:
    return f"{model_id} ({architecture})" if model_id else architecture
