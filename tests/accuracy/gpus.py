"""GPUs as served runs name them: ``h100_sxm``, ``A100``, ``2x L40S``, an id of the catalogue."""

import re

from tests.accuracy.memory_logs import read_gpu
from vlm_operator.sizing.inventory import GpuKind

UNSAID = {"a100": "80gb", "pro": "blackwell"}
"""What a name leaves out that is said of its cards in the catalogue: an A100 without more has 80 GB."""
PARTS = r"\bmig\b|\bvgpu\b|\d+g\.\d+gb"
"""Parts of a GPU, whose speed is no figure of the catalogue."""


def served_gpu(text: str) -> GpuKind | None:
    """Return the GPU that ``text`` names, None where the catalogue has none of that name."""
    plain = text.lower()
    if re.search(PARTS, plain):
        return None
    words = re.findall(r"[a-z0-9]+", plain)
    if not any(word.endswith("gb") for word in words):
        plain = " ".join([*words, *(UNSAID[word] for word in words if word in UNSAID)])
    kind = read_gpu(plain)
    return None if kind is None or kind.id == "unnamed" else kind
