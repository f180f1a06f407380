"""``quantization_config`` of a checkpoint: how which matrices are stored, or why that is unknown.

Sources: vLLM 0.33.0 ``model_executor/layers/quantization/{fp8,auto_awq,auto_gptq,modelopt}.py`` and
``compressed_tensors/``: tensors that each method creates, its exclusion list and its minimum capability.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vlm_operator.sizing.shape.exclusions import Exclusions, read_exclusions
from vlm_operator.sizing.shape.types import Quantisation, ShapeRefusal
from vlm_operator.sizing.shape.weight import Scheme, Weight

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
    reader = READERS.get(method)
    if reader is None:
        return _refuse(method, f"known are {', '.join(sorted(READERS))}")
    try:
        return reader(found)
    except KeyError as error:
        return _refuse(method, f"its quantization_config lacks {error}")
    except (TypeError, ValueError, AttributeError) as error:
        return _refuse(method, f"its quantization_config is not understood: {error}")


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
    kept = tuple(layer for layer in weight.layers if quantisation.plain.cover(weight, layer))
    stored = tuple(layer for layer in weight.layers if layer not in kept)
    plain, packed = replace(weight, layers=kept), replace(weight, layers=stored, scheme=quantisation.scheme)
    return tuple(part for part in (plain, packed) if part.layers)


def _plain(found: Mapping[str, Any]) -> Exclusions:
    """Return what the list of ``found`` excludes: each method and each release of an export has its own key for it."""
    keys = ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules")
    listed = next((found[key] for key in keys if found.get(key)), ())
    if isinstance(listed, str):
        listed = re.split(r"[\s,]+", listed)
    skipped = [str(module).removeprefix(_SKIPPED) for module in found.get("dynamic") or () if _is_skipped(module)]
    return read_exclusions([*map(str, listed), *(f"re:{expression}" for expression in skipped)])


def _is_skipped(module: object) -> bool:
    """Return whether an entry of GPTQ's ``dynamic`` leaves a module plain; others change its scheme."""
    return str(module).startswith(_SKIPPED)


def _group(value: Any, *, channel: int | None = None) -> int:
    """Return the rows that share a scale, 0 where the column has one: ``channel`` is how the method writes that.

    Raises:
        ValueError: It is no size of a group.
    """
    size = int(value)
    if size == channel:
        return 0
    if size < 1:
        raise ValueError(f"a group of {size} weights")
    return size


def _block(value: Any) -> tuple[int, int]:
    """Return the rows and columns of a block, which files give as columns and rows."""
    sides = [_group(side) for side in value]
    if len(sides) != 2:
        raise ValueError(f"a block of {len(sides)} sides")
    return sides[1], sides[0]


def _read_fp8(found: Mapping[str, Any]) -> Quantisation:
    block = found.get("weight_block_size")
    rows, columns = _block(block) if block else (0, 0)
    scheme = Scheme(bits=8, container_bits=8, group_rows=rows, group_columns=columns, scale_bytes=4)
    return Quantisation(
        method="fp8",
        format="fp8",
        scheme=scheme,
        plain=_plain(found),
        min_capability=MARLIN_CAPABILITY,
        native_capability=FP8_CAPABILITY,
        kv_dtype=None,
    )


def _read_awq(found: Mapping[str, Any]) -> Quantisation:
    bits = int(found.get("w_bit") or found["bits"])
    group = _group(found.get("q_group_size") or found["group_size"], channel=-1)
    if bits != 4:
        message = f"{bits} bits (AWQ is served with 4)"
        raise ValueError(message)
    scheme = Scheme(
        bits=bits,
        container_bits=_INT32,
        group_rows=group,
        group_columns=1,
        scale_bytes=2,
        zeros=bool(found.get("zero_point", True)),
    )
    return _int4("awq", scheme, found)


def _read_gptq(found: Mapping[str, Any]) -> Quantisation:
    bits, group = int(found["bits"]), _group(found["group_size"], channel=-1)
    if bits not in {4, 8} or not found.get("sym", True):
        kind = "" if found.get("sym", True) else "asymmetric "
        raise ValueError(f"{kind}{bits} bits (GPTQ is served with symmetric 4 and 8)")
    if not all(_is_skipped(module) for module in found.get("dynamic") or ()):
        raise ValueError("dynamic: several weight schemes in one checkpoint")
    scheme = Scheme(
        bits=bits,
        container_bits=_INT32,
        group_rows=group,
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
        plain=_plain(found),
        min_capability=INT4_CAPABILITY,
        native_capability=INT4_CAPABILITY,
        text_only=True,
        kv_dtype=None,
    )


def _read_compressed(found: Mapping[str, Any]) -> Quantisation:
    groups = found["config_groups"]
    weights = [group["weights"] for group in groups.values()]
    if not weights:
        raise ValueError("config_groups: it is empty")
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
        plain=_plain(found),
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
    rows, columns = _compressed_grouping(weight)
    if kind == "float" and bits != _BYTE and (bits, rows) not in _FP4_GROUPS:
        raise ValueError(f"{bits}-bit floats in groups of {rows} (8 bits, and 4 in groups of 16 or 32, are served)")
    if kind not in {"float", "int"} or not 2 <= bits <= _BYTE:
        raise ValueError(f"{bits} bits of type {kind} (integers of 2 to 8 and floats of 4 and 8 are served)")
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


def _compressed_grouping(weight: Mapping[str, Any]) -> tuple[int, int]:
    """Return the rows and columns that share a scale, 0 for all of them."""
    strategy = str(weight.get("strategy") or ("group" if weight.get("group_size") else "tensor"))
    if strategy == "block":
        block = weight.get("block_structure")
        return _block(block) if block else (128, 128)
    if strategy in {"group", "tensor_group"}:
        return _group(weight["group_size"], channel=-1), 1
    return {"tensor": (0, 0), "channel": (0, 1)}[strategy]


def _read_modelopt(found: Mapping[str, Any]) -> Quantisation:
    inner = found.get("quantization") or found
    algorithm = str(inner.get("quant_algo", "")).upper()
    if algorithm == "FP8":
        scheme = Scheme(bits=8, container_bits=8, group_rows=0, group_columns=0, scale_bytes=4)
        return Quantisation(
            method="modelopt",
            format="fp8",
            scheme=scheme,
            plain=_plain(inner),
            min_capability=FP8_CAPABILITY,
            native_capability=FP8_CAPABILITY,
            kv_dtype=_kv_dtype(inner),
        )
    if algorithm != "NVFP4":
        message = f"quant_algo {algorithm or '(none)'} (FP8 and NVFP4 are known)"
        raise ValueError(message)
    group = _group(inner.get("group_size") or 16)
    scheme = Scheme(bits=4, container_bits=8, group_rows=group, group_columns=1, scale_bytes=1)
    return Quantisation(
        method="modelopt_fp4",
        format="nvfp4",
        scheme=scheme,
        plain=_plain(inner),
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


_FP4_GROUPS: Final = frozenset({(4, 16), (4, 32)})
"""NVFP4 and MXFP4 (``compressed_tensors.py``, ``_is_nvfp4_format`` and ``_is_mxfp4``)."""
_SKIPPED: Final = "-:"
_INT32: Final = 32
_BYTE: Final = 8
READERS: Final = {
    "fp8": _read_fp8,
    "awq": _read_awq,
    "gptq": _read_gptq,
    "compressed-tensors": _read_compressed,
    "modelopt": _read_modelopt,
    "modelopt-fp4": _read_modelopt,
}
"""Methods whose storage is known, as ``quant_method`` names them."""
