"""What earlier releases of the engine did differently at start-up. The product itself knows one release only."""

import re
from dataclasses import dataclass

from vlm_operator.units import GIB

Version = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The engine's start-up as far as it depends on the release.

    Attributes:
        utilization: ``--gpu-memory-utilization`` where it is not given.
        sorts_logits: The sampler sorts the logits of every sequence instead of searching for the threshold.
        charges_graphs: The estimate for CUDA graphs comes out of the budget.
        keeps_request_state: The sampler's counts and masks are allocated before profiling (second model runner).
        symmetric_memory: Ranks hold symmetric and multicast memory where the GPUs have it.
        wide_pixels: Pixels are float32 on the GPU.
        wide_rotary: Towers with rotary positions rotate queries and keys together in float32.
        caps_video: The dummy video is cut to what ``max_model_len`` leaves beside one image.
    """

    version: Version
    utilization: float
    sorts_logits: bool
    charges_graphs: bool
    keeps_request_state: bool
    symmetric_memory: bool
    wide_pixels: bool
    wide_rotary: bool
    caps_video: bool


SORTED_COPIES = 9.6
"""Copies of the fp32 logits in releases that sort them: 4.70 to 7.34 GiB at 1,024 rows on mem02a to mem02g."""

FIRST_SCORED: Version = (0, 8)
"""The first release whose default engine is V1."""


def parse_version(text: str) -> Version | None:
    """Return major and minor of a free text such as ``~0.19 dev (2026-04)`` or ``0.11.0 V1``; None without one."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else None


def release_of(version: Version) -> Release:
    """Return what the release did.

    Sampler: a test of one model over releases shows 5.64 GiB up to 0.16 and 2.23 from 0.17 on. Graphs: the log line
    that announces the charge stands in logs of 0.20. Request state: logs of 0.23 are of the first runner, of 0.31 of
    the second. Symmetric memory: 0.55 GiB in 0.11, 2.1 in 0.19. Pixels: cast on the CPU since 0.10. Rotation: the code
    up to 0.12 joins and copies both (3.1 GiB for one image in 0.11), logs of 0.22 and 0.23 show no copy. Video: 0.11
    cuts it, 0.23 profiles 114,688 tokens whatever the length.
    """
    return Release(
        version=version,
        utilization=0.92 if version >= (0, 20) else 0.9,
        sorts_logits=version < (0, 17),
        charges_graphs=version >= (0, 20),
        keeps_request_state=version >= (0, 26),
        symmetric_memory=version >= (0, 17),
        wide_pixels=version < (0, 10),
        wide_rotary=(0, 10) <= version < (0, 13),
        caps_video=version < (0, 13),
    )


def default_batch(release: Release, total_bytes: int, gpu_name: str, *, offline: bool) -> tuple[int, int]:
    """Return (batched tokens, sequences) where the flags do not say: by size of the GPU, as in 0.33 but for LLM()."""
    if release.version >= (0, 20) and total_bytes >= 160 * GIB:
        return 16384, 1024
    if total_bytes >= 70 * GIB and "a100" not in gpu_name.lower():
        return (16384 if offline else 8192), 1024
    return (8192 if offline else 2048), 256
