"""The rules of ``nvidia.com/gpu.product``."""

import pytest

from vlm_operator.catalogue.labels import label_of_product_name, parse_mig_profile, parse_product_label, spellings


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


@pytest.mark.parametrize(
    ("profile", "compute_slices", "memory_gigabytes", "shares_memory"),
    [
        ("1g.5gb", 1, 5, False),
        ("3g.40gb", 3, 40, False),
        ("1g.20gb.me", 1, 20, False),
        ("1g.10gb+me", 1, 10, False),
        ("7g.141gb", 7, 141, False),
        ("1c.3g.40gb", 3, 40, True),
    ],
)
def test_a_mig_profile_is_taken_apart(
    profile: str,
    compute_slices: int,
    memory_gigabytes: int,
    shares_memory: bool,  # noqa: FBT001 - a table's column
) -> None:
    parsed = parse_mig_profile(profile)
    assert (parsed.compute_slices, parsed.memory_gigabytes) == (compute_slices, memory_gigabytes)
    assert parsed.shares_memory == shares_memory


@pytest.mark.parametrize("profile", ["INVALID", "g.5gb", ""])
def test_what_is_no_mig_profile_is_refused(profile: str) -> None:
    with pytest.raises(ValueError, match=r"write for example 3g\.40gb"):
        parse_mig_profile(profile)


def test_drivers_before_r470_leave_the_vendor_out() -> None:
    assert spellings("NVIDIA-A100-SXM4-40GB") == ("NVIDIA-A100-SXM4-40GB", "A100-SXM4-40GB")
    assert spellings("Tesla-T4") == ("Tesla-T4", "NVIDIA-Tesla-T4")
