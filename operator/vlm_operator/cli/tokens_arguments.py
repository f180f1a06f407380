"""The arguments of ``vlmctl tokens``."""

import argparse

from vlm_operator.cli.arguments import add_model_arguments, add_processor_arguments, pixel_size, positive

_SIZES_HELP = """\
a list of sizes ('-': standard input), one a line: 4032x3024, or 4032,3024,
or {"width": 4032, "height": 3024}; a number of images may stand behind"""


_EPILOG = """\
exit status:
  0 every image is counted · 1 an image is refused or broken, or no cap works · 2 the model, the settings or the
  arguments are wrong

examples:
  vlmctl tokens --model Qwen/Qwen2.5-VL-7B-Instruct --image 4032x3024 --explain
  vlmctl tokens --model Qwen/Qwen2.5-VL-7B-Instruct --images scans/ --over-cap
  vlmctl tokens --model OpenGVLab/InternVL3-8B --sizes sizes.csv --min-pixels 1003520
"""


def add_tokens_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names the model, the images, the settings and the questions."""
    parser.epilog = _EPILOG
    add_model_arguments(parser)
    parser.add_argument(
        "--image", action="append", default=[], type=pixel_size, metavar="WxH",
        help="width x height in pixels; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--images", metavar="DIR", help="a folder of image files: headers are read, no pixel is decoded"
    )
    parser.add_argument("--sizes", metavar="FILE", help=_SIZES_HELP)
    add_processor_arguments(parser)
    parser.add_argument("--explain", action="store_true", help="add how the count comes about, the maximum and the cap")
    parser.add_argument("--over-cap", action="store_true", help="add what each cap of the family means for the images")
    parser.add_argument(
        "--min-pixels", type=positive, metavar="N", help="add the smallest cap that keeps N pixels of each image"
    )
    parser.add_argument(
        "--min-tokens", type=positive, metavar="N", help="add the smallest cap that keeps N tokens of each image"
    )
    parser.add_argument(
        "--requests",
        metavar="FILE",
        help="JSON Lines, one request a line ('-': standard input); answers likewise",
    )
