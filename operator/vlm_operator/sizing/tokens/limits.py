"""Sizes that the engine turns away whatever the family."""

from typing import Final

from vlm_operator.sizing.tokens.types import TokenRefusal

MAX_DECODED_PIXELS: Final = 178_956_970
"""Default of ``VLLM_MAX_IMAGE_PIXELS``; a larger image is turned away before it is decoded."""


def check_size(width: int, height: int) -> TokenRefusal | None:
    """Return why an image of this size cannot be decoded, None where it can."""
    if width < 1 or height < 1:
        return TokenRefusal(
            reason="InvalidImageSize",
            message=f"image size {width}x{height}: width and height must be at least 1 pixel; "
            "give the size in pixels, such as 4032x3024",
        )
    pixels = width * height
    if pixels > MAX_DECODED_PIXELS:
        shown = f"{pixels:,}" if pixels < 10**15 else "more than 10^15"
        return TokenRefusal(
            reason="ImageTooLarge",
            message=f"image size {width}x{height} is {shown} pixels, and the engine decodes at most "
            f"{MAX_DECODED_PIXELS:,}; scale the image down, or raise VLLM_MAX_IMAGE_PIXELS on the server",
        )
    return None
