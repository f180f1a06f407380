"""``quantization_config`` of a checkpoint: how which matrices are stored, or why that is unknown.

Sources: vLLM 0.33.0 ``model_executor/layers/quantization/{fp8,auto_awq,auto_gptq,modelopt}.py`` and
``compressed_tensors/``: tensors that each method creates, its exclusion list and its minimum capability.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vlm_operator.sizing.shape.types import Quantisation, ShapeRefusal
from vlm_operator.sizing.shape.weight import Scheme, Weight

TEXT_PREFIXES: Final = ("model.language_model.", "language_model.model.", "model.", "language_model.", "")
TOWER_WORDS: Final = ("visual", "vision_tower", "vision_model", "vision_encoder", "visual_tokenizer")
PROJECTOR_WORDS: Final = (
    "visual",
    "multi_modal_projector",
    "mm_projector",
    "mlp1",
    "embed_vision",
    "connector",
    "merger",
    "resampler",
    "projector",
)
"""How exclusion lists name the parts. An export that lists any module of a tower leaves the whole tower plain, and
their module names differ too much to compare one by one; the language model's are compared exactly."""


FP8_CAPABILITY: Final = (8, 9)
INT4_CAPABILITY: Final = (7, 5)
MARLIN_CAPABILITY: Final = (7, 5)


def read_quantisation(config: Mapping[str, Any]) -> Quantisation | ShapeRefusal | None:
    """Return how the checkpoint with this ``config.json`` is stored; None for plain elements."""
    parts = (config, *(config.get(key) or {} for key in ("text_config", "llm_config", "language_config")))
    found = next((part["quantization_config"] for part in parts if part.get("quantization_config")), None)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        return _refuse(str(found), "its quantization_config is no mapping")
    method = str(found.get("quant_method", "unknown")).lower().replace("_", "-")
    reader = _READERS.get(method)
    if reader is None:
        return _refuse(method, f"known are {', '.join(sorted(_READERS))}")
    try:
        return reader(found)
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        return _refuse(method, f"its quantization_config lacks or garbles {error}")


def apply_quantisation(weights: tuple[Weight, ...], quantisation: Quantisation | None) -> tuple[Weight, ...]:
    """Return ``weights`` with the scheme of those that ``quantisation`` covers, split where only some layers are."""
    if quantisation is None:
        return weights
    return tuple(part for weight in weights for part in _apply(weight, quantisation))


def _apply(weight: Weight, quantisation: Quantisation) -> tuple[Weight, ...]:
    if not weight.linear or weight.part in {"embedding", "lm_head", "router", "audio"}:
        return (weight,)
    if quantisation.text_only and weight.part in {"vision_tower", "projector"}:
        return (weight,)
    kept = tuple(layer for layer in weight.layers if is_ignored(weight, layer, quantisation.ignore))
    stored = tuple(layer for layer in weight.layers if layer not in kept)
    plain, packed = replace(weight, layers=kept), replace(weight, layers=stored, scheme=quantisation.scheme)
    return tuple(part for part in (plain, packed) if part.layers)


def is_ignored(weight: Weight, layer: int, ignore: tuple[str, ...]) -> bool:
    """Return whether an exclusion list names the module of ``weight`` in ``layer``, in any of its spellings."""
    words = {"vision_tower": TOWER_WORDS, "projector": PROJECTOR_WORDS}.get(weight.part)
    if words is not None:
        return any(word in pattern for pattern in ignore for word in words)
    names = [prefix + weight.name.format(layer) for prefix in TEXT_PREFIXES]
    return any(_matches(pattern, name) for pattern in ignore for name in names)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    if "*" in pattern:
        return fnmatch.fnmatchcase(name, pattern)
    return f".{pattern}." in f".{name}."


def _ignore(found: Mapping[str, Any]) -> tuple[str, ...]:
    listed = found.get("modules_to_not_convert") or found.get("ignore") or found.get("exclude_modules") or ()
    if isinstance(listed, str):
        return tuple(re.split(r"[\s,]+", listed))
    return tuple(str(entry) for entry in listed)


def _read_fp8(found: Mapping[str, Any]) -> Quantisation:
    block = found.get("weight_block_size")
    rows, columns = (int(block[1]), int(block[0])) if block else (0, 0)
    scheme = Scheme(bits=8, container_bits=8, group_rows=rows, group_columns=columns, scale_bytes=4)
    return Quantisation(
        method="fp8",
        format="fp8",
        scheme=scheme,
        ignore=_ignore(found),
        min_capability=MARLIN_CAPABILITY,
        native_capability=FP8_CAPABILITY,
        kv_dtype=None,
    )


def _read_awq(found: Mapping[str, Any]) -> Quantisation:
    bits, group = int(found["bits"]), int(found["group_size"])
    if bits != 4:
        message = f"{bits} bits (AWQ is served with 4)"
        raise ValueError(message)
    scheme = Scheme(
        bits=bits,
        container_bits=_INT32,
        group_rows=max(group, 0),
        group_columns=1,
        scale_bytes=2,
        zeros=bool(found.get("zero_point", True)),
    )
    return _int4("awq", scheme, found)


def _read_gptq(found: Mapping[str, Any]) -> Quantisation:
    bits, group = int(found["bits"]), int(found["group_size"])
    if bits not in {2, 3, 4, 8}:
        message = f"{bits} bits (GPTQ is served with 2, 3, 4 and 8)"
        raise ValueError(message)
    scheme = Scheme(
        bits=bits,
        container_bits=_INT32,
        group_rows=max(group, 0),
        group_columns=1,
        scale_bytes=2,
        zeros=True,
        index=True,
    )
    return _int4("gptq", scheme, found)


def _int4(method: str, scheme: Scheme, found: Mapping[str, Any]) -> Quantisation:
    return Quantisation(
        method=method,
        format=method,
        scheme=scheme,
        ignore=_ignore(found),
        min_capability=INT4_CAPABILITY,
        native_capability=INT4_CAPABILITY,
        text_only=True,
        kv_dtype=None,
    )


def _read_compressed(found: Mapping[str, Any]) -> Quantisation:
    groups = found["config_groups"]
    weights = [group["weights"] for group in groups.values()]
    if any(entry != weights[0] for entry in weights):
        message = "config_groups: several weight schemes in one checkpoint"
        raise ValueError(message)
    inputs = next(iter(groups.values())).get("input_activations")
    weight = weights[0]
    bits, kind = int(weight["num_bits"]), str(weight["type"])
    scheme = _compressed_scheme(weight, bits, kind)
    if kind == "int" and bits < _BYTE and inputs is not None:
        message = f"{bits}-bit weights with quantised activations, which few GPUs have kernels for"
        raise ValueError(message)
    integer = kind == "int" and bits == _BYTE and inputs is not None
    return Quantisation(
        method="compressed-tensors",
        format=_compressed_format(bits, kind),
        scheme=scheme,
        ignore=_ignore(found),
        min_capability=MARLIN_CAPABILITY,
        native_capability=FP8_CAPABILITY if kind == "float" and bits == _BYTE else MARLIN_CAPABILITY,
        integer_activations=integer,
        kv_dtype=_kv_dtype(found),
    )


def _compressed_format(bits: int, kind: str) -> str:
    if kind == "float":
        return "fp8" if bits == _BYTE else f"nvfp{bits}"
    return f"int{bits}"


def _compressed_scheme(weight: Mapping[str, Any], bits: int, kind: str) -> Scheme:
    strategy = str(weight.get("strategy") or ("group" if weight.get("group_size") else "tensor"))
    block = weight.get("block_structure")
    groupings = {
        "tensor": (0, 0),
        "channel": (0, 1),
        "group": (int(weight.get("group_size") or 0), 1),
        "tensor_group": (int(weight.get("group_size") or 0), 1),
        "block": (int(block[1]), int(block[0])) if block else (128, 128),
    }
    rows, columns = groupings[strategy]
    packed = kind == "int" and bits < _BYTE
    scale = (1 if packed is False and rows else 4) if bits < _BYTE else 4
    return Scheme(
        bits=bits,
        container_bits=_INT32 if packed else _BYTE,
        group_rows=rows,
        group_columns=columns,
        scale_bytes=2 if packed else scale,
        zeros=packed and not weight.get("symmetric", True),
    )


def _read_modelopt(found: Mapping[str, Any]) -> Quantisation:
    inner = found.get("quantization") or found
    algorithm = str(inner.get("quant_algo", "")).upper()
    if algorithm == "FP8":
        scheme = Scheme(bits=8, container_bits=8, group_rows=0, group_columns=0, scale_bytes=4)
        return Quantisation(
            method="modelopt",
            format="fp8",
            scheme=scheme,
            ignore=_ignore(inner),
            min_capability=FP8_CAPABILITY,
            native_capability=FP8_CAPABILITY,
            kv_dtype=_kv_dtype(inner),
        )
    if algorithm != "NVFP4":
        message = f"quant_algo {algorithm or '(none)'} (FP8 and NVFP4 are known)"
        raise ValueError(message)
    group = int(inner.get("group_size") or 16)
    scheme = Scheme(bits=4, container_bits=8, group_rows=group, group_columns=1, scale_bytes=1)
    return Quantisation(
        method="modelopt_fp4",
        format="nvfp4",
        scheme=scheme,
        ignore=_ignore(inner),
        min_capability=MARLIN_CAPABILITY,
        native_capability=(10, 0),
        kv_dtype=_kv_dtype(inner),
    )


def _kv_dtype(found: Mapping[str, Any]) -> str | None:
    scheme = found.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == _BYTE and scheme.get("type") == "float":
        return "fp8"
    return "fp8" if str(found.get("kv_cache_quant_algo") or "").upper() == "FP8" else None


def _refuse(method: str, why: str) -> ShapeRefusal:
    return ShapeRefusal(
        reason="UnknownQuantisation",
        message=f"the checkpoint is quantised with {method}, which cannot be sized: {why}; use its BF16 original",
    )


_INT32: Final = 32
_BYTE: Final = 8
_READERS: Final = {
    "fp8": _read_fp8,
    "awq": _read_awq,
    "gptq": _read_gptq,
    "compressed-tensors": _read_compressed,
    "modelopt": _read_modelopt,
    "modelopt-fp4": _read_modelopt,
}
