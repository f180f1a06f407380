"""The rules of ``nvidia.com/gpu.product``, as GPU feature discovery writes it.

The label is the driver's product name with whitespace turned into ``-``. MIG (strategy single) inserts
``-MIG-<profile>``; time-slicing and MPS append ``-SHARED`` unless the resource was renamed. Drivers before
R470 leave out the leading ``NVIDIA``. Source: NVIDIA/k8s-device-plugin@1b826ac:internal/lm/resource.go.
"""

import re
from dataclasses import dataclass

_SHARED = "-SHARED"
_MIG = re.compile(r"^(?P<product>.+?)-MIG-(?P<profile>(?:\d+c\.)?\d+g\.\d+gb(?:[.+][\w.+-]+)?)$")
_PROFILE = re.compile(r"(?:(?P<computes>\d+)c\.)?(?P<compute_slices>\d+)g\.(?P<gigabytes>\d+)gb")
_DROPPED = re.compile(r"[^A-Za-z0-9\-_. ]")
_BLANKS = re.compile(r"\s+")
_VENDOR = "NVIDIA-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLabel:
    """What a product label says: the product, its MIG slice if it is one, and whether pods share the GPU."""

    product: str
    mig_profile: str | None
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """What the name of a MIG instance says.

    Attributes:
        compute_slices: Its share of the multiprocessors, of 7 (or of 4 where the GPU is cut into 4 at most).
        memory_gigabytes: Its memory, rounded as names are; the label ``nvidia.com/gpu.memory`` has the true size.
        shares_memory: Whether it is a compute instance, which shares the memory of its GPU instance with others.
    """

    compute_slices: int
    memory_gigabytes: int
    shares_memory: bool


def parse_mig_profile(profile: str) -> MigProfile:
    """Take the name of a MIG instance apart, such as ``3g.40gb``, ``1g.10gb.me`` or ``1c.3g.40gb``.

    Raises:
        ValueError: ``profile`` is no such name.
    """
    match = _PROFILE.match(profile)
    if match is None:
        raise ValueError(f"{profile!r} is no MIG profile; write for example 3g.40gb")
    return MigProfile(
        compute_slices=int(match["compute_slices"]),
        memory_gigabytes=int(match["gigabytes"]),
        shares_memory=match["computes"] is not None,
    )


def parse_product_label(label: str) -> ProductLabel:
    """Take a value of ``nvidia.com/gpu.product`` apart.

    Args:
        label: The label's value, e.g. ``NVIDIA-A100-SXM4-80GB-MIG-3g.40gb-SHARED``.

    Returns:
        The product without suffixes, the MIG profile or None, and whether the GPU is shared.
    """
    shared = label.endswith(_SHARED)
    bare = label.removesuffix(_SHARED)
    match = _MIG.match(bare)
    if match:
        return ProductLabel(product=match["product"], mig_profile=match["profile"], shared=shared)
    return ProductLabel(product=bare, mig_profile=None, shared=shared)


def label_of_product_name(name: str) -> str:
    """The label that GPU feature discovery makes of a driver's product name."""
    return _BLANKS.sub("-", _DROPPED.sub("", name).strip())


def spellings(product: str) -> tuple[str, ...]:
    """The product as written and as drivers of the other age write it (with or without ``NVIDIA-``)."""
    other = product.removeprefix(_VENDOR) if product.startswith(_VENDOR) else _VENDOR + product
    return (product, other)
