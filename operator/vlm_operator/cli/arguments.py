"""Values of arguments: how text of the command line becomes a value, and the help that says so."""

import argparse
import json
import re
from typing import Any

FILE_HELP = "a file with one or more VLMDeployments; '-' reads standard input"

INVENTORY_HELP = """\
which GPUs may be used:
  catalogue  whatever the catalogue knows, as many as wanted (default)
  cluster    the GPU nodes of the cluster that kubectl would speak to
  FILE       a YAML list, such as
               - {gpu: NVIDIA-L40S, gpusPerNode: 4, cpuCores: 47, memoryGiB: 364,
                  nodes: 2, hourlyCents: 86}
             gpu: a node label (nvidia.com/gpu.product) or a catalogue id
             (vlmctl catalogue gpus); cpuCores and memoryGiB: what one node has for pods;
             only gpu and gpusPerNode are required; hourlyCents is the price of one GPU"""

MODEL_DIR_HELP = """\
a folder with the model's own config.json and preprocessor_config.json, instead of its
source; the headers of safetensors files in it make the weights exact"""


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names a model and where it is described."""
    parser.add_argument("--model", metavar="ID", help="model of the catalogue (vlmctl catalogue models), or of the hub")
    parser.add_argument(
        "--source", choices=("catalogue", "hub"), default="catalogue",
        help="where the model is described (default: catalogue);\nhub: that of HF_ENDPOINT, with the token HF_TOKEN",
    )  # fmt: skip
    parser.add_argument("--model-dir", metavar="DIR", help=MODEL_DIR_HELP)


_PIXEL_SIZE = re.compile(r"(\d{1,9})[xX\u00d7](\d{1,9})", re.ASCII)


def pixel_size(text: str) -> tuple[int, int]:
    """Return (width, height) of a size such as ``4032x3024``.

    Raises:
        argparse.ArgumentTypeError: ``text`` is not a size.
    """
    match = _PIXEL_SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write width x height in pixels: 4032x3024")
    width, height = int(match[1]), int(match[2])
    if min(width, height) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: width and height must be at least 1 pixel")
    return width, height


def positive(text: str) -> int:
    """Return a whole number above 0, thousands separated by commas or not.

    Raises:
        argparse.ArgumentTypeError: ``text`` is anything else.
    """
    digits = text.strip().replace(",", "")
    if not re.fullmatch(r"\d{1,15}", digits, re.ASCII) or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0; write for example 16")
    return int(digits)


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in ``text``.

    Raises:
        argparse.ArgumentTypeError: ``text`` is not a JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not JSON ({error}); write for example '{{\"max_pixels\": 1003520}}'"
        ) from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a JSON object; write for example '{{\"max_pixels\": 1003520}}'"
        )
    return value


def add_processor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two flags of the engine that change how images are processed."""
    for flag, example in (
        ("--processor-kwargs", '{"max_pixels": 1003520}'),
        ("--hf-overrides", '{"max_dynamic_patch": 6}'),
    ):
        parser.add_argument(
            flag, default={}, type=json_object, metavar="JSON", help=f"as vLLM takes it, such as '{example}'"
        )
