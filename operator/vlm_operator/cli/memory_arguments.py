"""The arguments of ``vlmctl memory``: the flags of the engine that cost or give memory."""

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.cli.arguments import add_model_arguments, add_processor_arguments, positive

KV_CACHE_DTYPES: Final = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")

_DEFAULTS: Final[Mapping[str, Any]] = {
    "source": "catalogue",
    "model_dir": None,
    "tp": 1,
    "max_model_len": None,
    "max_num_seqs": None,
    "max_num_batched_tokens": None,
    "utilization": None,
    "cap": None,
    "images_per_request": 1,
    "videos_per_request": 0,
    "kv_cache_dtype": "auto",
    "encoder_mode": "weights",
    "processor_kwargs": {},
    "hf_overrides": {},
}


def add_memory_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the GPU and the flags; what is left out is what ``vllm serve`` takes by itself."""
    parser.set_defaults(**_DEFAULTS)
    add_model_arguments(parser)
    parser.add_argument(
        "--gpu",
        required=True,
        metavar="GPU",
        help="catalogue id (vlmctl catalogue gpus) or product label, also of a MIG instance",
    )
    parser.add_argument("--tp", type=positive, metavar="N", help="tensor parallel size; default: 1")
    parser.add_argument(
        "--max-model-len", type=positive, metavar="N", help="longest request in tokens; default: the checkpoint's own"
    )
    parser.add_argument("--max-num-seqs", type=positive, metavar="N", help="requests at once; default: by GPU")
    parser.add_argument("--max-num-batched-tokens", type=positive, metavar="N", help="tokens a step; default: by GPU")
    parser.add_argument("--utilization", type=share, metavar="X", help="share of the GPU that is used; default: 0.92")
    parser.add_argument("--cap", type=positive, metavar="N", help="cap on images (vlmctl tokens --over-cap names it)")
    parser.add_argument("--images-per-request", type=positive, metavar="N", help="most images of a request; default: 1")
    parser.add_argument("--videos-per-request", type=count, metavar="N", help="most videos of a request; default: 0")
    parser.add_argument("--kv-cache-dtype", choices=KV_CACHE_DTYPES, help="default: auto, the checkpoint's own")
    parser.add_argument(
        "--encoder-mode", choices=("weights", "data"), help="what GPUs share of the vision tower; default: weights"
    )
    add_processor_arguments(parser)


def given_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options that were given, by name, as they are written for a shell to read."""
    values = {"model": arguments.model} if arguments.model else {}
    values |= {"gpu": arguments.gpu}
    values |= {name: value for name in _DEFAULTS if (value := getattr(arguments, name)) != _DEFAULTS[name]}
    return {f"--{name.replace('_', '-')}": _text(name, value) for name, value in values.items()}


def _text(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{value / 100:.2f}" if name == "utilization" else str(value)


def share(text: str) -> int:
    """Return a share such as ``0.92`` in whole per cent.

    Raises:
        argparse.ArgumentTypeError: ``text`` is no share of 0.01 to 1.00, or no whole per cent.
    """
    try:
        percent = float(text) * 100
    except ValueError:
        percent = 0.0
    if not 1 <= round(percent) <= 100 or abs(percent - round(percent)) > 1e-6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0.01 to 1.00 in steps of 0.01; write 0.92")
    return round(percent)


def count(text: str) -> int:
    """Return a whole number, 0 included.

    Raises:
        argparse.ArgumentTypeError: ``text`` is anything else.
    """
    return 0 if text.strip() == "0" else positive(text)
