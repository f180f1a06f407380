"""The rules of ``nvidia.com/gpu.product``."""

import pytest

from vlm_operator.catalogue.labels import label_of_product_name, parse_product_label


@pytest.mark.parametrize(
    ("label", "product", "mig_profile", "shared"),
    [
        ("NVIDIA-L4", "NVIDIA-L4", None, False),
        ("NVIDIA-L4-SHARED", "NVIDIA-L4", None, True),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "NVIDIA-A100-SXM4-80GB", "3g.40gb", False),
        ("A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100-SXM4-40GB", "1g.5gb", True),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.20gb.me", "NVIDIA-H100-80GB-HBM3", "1g.20gb.me", False),
        ("NVIDIA-H100-80GB-HBM3-MIG-1c.3g.40gb", "NVIDIA-H100-80GB-HBM3", "1c.3g.40gb", False),
    ],
)
def test_a_label_is_taken_apart(label: str, product: str, mig_profile: str | None, shared: bool) -> None:  # noqa: FBT001 - a table's column
    parsed = parse_product_label(label)
    assert (parsed.product, parsed.mig_profile, parsed.shared) == (product, mig_profile, shared)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("Tesla T4", "Tesla-T4"),
        ("NVIDIA A100-SXM4-40GB (rev  2)", "NVIDIA-A100-SXM4-40GB-rev-2"),
    ],
)
def test_a_product_name_becomes_a_label(name: str, label: str) -> None:
    assert label_of_product_name(name) == label
