"""The catalogue's files and their reader."""

import time
from collections.abc import Iterator

import pytest

from vlm_operator.catalogue import load
from vlm_operator.catalogue.types import GpuCard
from vlm_operator.errors import CatalogueError
from vlm_operator.sizing.inventory import kind_from_card
from vlm_operator.units import GIB, MIB

NVIDIA = [card for card in load.all_gpus() if card.vendor == "nvidia"]


@pytest.fixture
def empty_caches() -> Iterator[None]:
    caches = (load.find_model, load.model_ids, load.gpu_ids, load.find_gpu, load._gpu, load._gpus_by_label)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_every_file_of_the_catalogue_is_valid() -> None:
    assert load.validate_all() == []


def test_the_module_run_as_a_program_is_content(capsys: pytest.CaptureFixture[str]) -> None:
    assert load.main() == 0
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("empty_caches")
def test_the_problems_of_all_files_are_reported_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(kind: str, stem: str, _entry_type: object) -> GpuCard:
        raise CatalogueError(f"{kind}/{stem}.yaml: broken")

    monkeypatch.setattr(load, "_read", broken)
    assert load.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(load.model_ids()) + len(load.gpu_ids())


@pytest.mark.parametrize(
    ("model_id", "parameters"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", 8_291_375_616),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 8_292_166_656),
        ("Qwen/Qwen2.5-VL-72B-Instruct", 73_410_777_344),
    ],
)
def test_the_parameters_are_those_of_the_checkpoint(model_id: str, parameters: int) -> None:
    assert load.find_model(model_id).parameters == parameters


def test_small_floats_stay_numbers() -> None:
    assert load.find_model("Qwen/Qwen2.5-VL-7B-Instruct").config["rms_norm_eps"] == pytest.approx(1e-6)


def test_an_unknown_model_is_refused_with_the_nearest_id_and_the_next_step() -> None:
    with pytest.raises(CatalogueError, match=r"nearest: Qwen/Qwen2\.5-VL-7B-Instruct.*vlmctl catalogue models"):
        load.find_model("qwen/qwen2.5-vl-7b-instruct")


def test_a_model_like_no_other_gets_no_nearest_id() -> None:
    with pytest.raises(CatalogueError, match=r"not in the catalogue\. All that can be sized"):
        load.find_model("0000")


def test_a_model_that_the_engine_dropped_names_the_last_version_that_served_it() -> None:
    card = load.find_model("meta-llama/Llama-3.2-11B-Vision-Instruct")
    assert (card.served, card.last_engine_version) == (False, "0.10.2")


@pytest.mark.usefixtures("empty_caches")
def test_listing_ids_reads_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_read", pytest.fail)
    assert "google/gemma-3-27b-it" in load.model_ids()
    assert len(load.gpu_ids()) == 37


@pytest.mark.usefixtures("empty_caches")
def test_one_model_is_read_in_less_than_ten_milliseconds() -> None:
    durations = []
    for _ in range(5):
        load.find_model.cache_clear()
        begin = time.process_time()
        load.find_model("Qwen/Qwen3-VL-8B-Instruct")
        durations.append(time.process_time() - begin)
    assert min(durations) < 0.010


@pytest.mark.parametrize("card", NVIDIA, ids=lambda card: card.id)
def test_an_nvidia_gpu_is_found_by_each_of_its_labels(card: GpuCard) -> None:
    assert card.labels
    assert {load.find_gpu(label).id for label in card.labels} == {card.id}
    assert {load.find_gpu(label.removeprefix("NVIDIA-")).id for label in card.labels} == {card.id}


def test_an_unknown_gpu_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(CatalogueError, match="NVIDIA-H100-80GB-HBM3"):
        load.find_gpu("NVIDIA-H100-80GB-HBM2")


def test_a_slice_of_a_gpu_is_not_taken_for_the_whole() -> None:
    with pytest.raises(CatalogueError, match="not in the catalogue"):
        load.find_gpu("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb")


@pytest.mark.parametrize("card", load.all_gpus(), ids=lambda card: card.id)
def test_the_price_is_the_cheapest_fully_used_instance(card: GpuCard) -> None:
    per_gpu = [offer.usd_per_hour / offer.gpus for offer in card.offers]
    if card.price is None:
        assert not per_gpu
        return
    assert card.price.usd_per_gpu_hour == pytest.approx(min(per_gpu), abs=5e-5)
    offer = next(offer for offer in card.offers if offer.instance == card.price.instance)
    assert card.price.by_share == (offer.gpus > 1)


def test_a_whole_instance_comes_before_the_share_of_a_larger_one() -> None:
    card = load.find_gpu("l4")
    one, two, eight = card.price_for(1), card.price_for(2), card.price_for(8)
    assert one
    assert (one.usd_per_gpu_hour, one.by_share) == (0.7068, False)
    assert two
    assert two.by_share is False
    assert eight
    assert eight.usd_per_gpu_hour * 8 == pytest.approx(card.offers[-1].usd_per_hour, rel=1e-3)


def test_one_gpu_of_an_eight_gpu_instance_is_priced_by_share() -> None:
    price = load.find_gpu("h200-sxm").price_for(1)
    assert price
    assert (price.usd_per_gpu_hour, price.instance, price.by_share) == (7.912, "p5en.48xlarge", True)


def test_more_gpus_than_any_instance_has_are_without_a_price() -> None:
    assert load.find_gpu("h200-sxm").price_for(16) is None


def test_an_unknown_price_stays_unknown() -> None:
    card = load.find_gpu("a30")
    assert card.price is None
    assert kind_from_card(card).hourly_cents is None
    assert kind_from_card(card).price_note == "price unknown"


@pytest.mark.parametrize("card", NVIDIA, ids=lambda card: card.id)
def test_every_nvidia_card_makes_a_kind_whose_engine_memory_is_less_than_the_drivers(card: GpuCard) -> None:
    kind = kind_from_card(card)
    assert 0.3 * GIB < kind.driver_memory_bytes - kind.engine_memory_bytes < 8 * GIB
    assert kind.engine_memory_certainty in {"measured", "estimated"}


@pytest.mark.parametrize(
    ("gpu", "driver_mib", "engine_gib"),
    [  # nvidia-smi beside the total that an engine's log or an out-of-memory message names
        ("a100-40gb-sxm", 40_960, 39.38),  # vllm-project/vllm#16570
        ("a100-80gb-sxm", 81_920, 79.15),  # ollama/ollama#2264: 84,987,740,160 bytes
        ("h100-80gb-sxm", 81_559, 79.22),  # vllm-project/vllm#10511
        ("l4", 23_034, 22.07),
        ("a10g", 23_028, 22.07),
        ("rtx-3090", 24_576, 23.58),  # vllm-project/vllm#10517
        ("rtx-4090", 24_564, 23.64),
        ("t4", 15_360, 14.56),
    ],
)
def test_a_known_pair_of_driver_and_engine_memory_is_ours_within_a_tenth_of_a_gib(
    gpu: str, driver_mib: int, engine_gib: float
) -> None:
    card = load.find_gpu(gpu)
    assert card.driver_memory_mib == driver_mib
    assert card.engine_memory_gib == pytest.approx(engine_gib, abs=0.11)


def test_memory_that_no_log_shows_is_the_drivers_less_a_loss_that_was_seen_and_says_so() -> None:
    losses = {
        card.id: card.driver_memory_mib / 1024 - card.engine_memory_gib
        for card in NVIDIA
        if card.driver_memory_mib is not None and card.engine_memory_gib is not None
    }
    measured = [losses[card.id] for card in NVIDIA if card.engine_memory_provenance.certainty == "measured"]
    unsure = {card.id: losses[card.id] for card in NVIDIA if card.engine_memory_provenance.certainty == "estimated"}
    assert len(measured) >= 8
    assert all(min(measured) - 0.01 <= loss <= 1.1 for loss in unsure.values()), unsure


def test_a_kind_is_in_bytes_and_cents() -> None:
    kind = kind_from_card(load.find_gpu("NVIDIA-H100-80GB-HBM3"))
    assert kind.driver_memory_bytes == 81_559 * MIB
    assert kind.engine_memory_bytes == int(79.18 * GIB)
    assert kind.engine_memory_certainty == "measured"
    assert kind.compute_capability == (9, 0)
    assert kind.bandwidth_bytes_per_second == 3.35e12
    assert kind.hourly_cents == 688


def test_a_card_without_memory_figures_makes_no_kind() -> None:
    with pytest.raises(CatalogueError, match="gaudi2"):
        kind_from_card(load.find_gpu("gaudi2"))


@pytest.mark.parametrize(
    ("jurisdiction", "excluded"), [("EU", True), ("DE", True), ("EL", True), ("US", False), ("GB", False)]
)
def test_an_exclusion_of_the_european_union_holds_in_its_member_states(jurisdiction: str, *, excluded: bool) -> None:
    licence = load.find_licence("meta-llama/Llama-3.2-11B-Vision-Instruct")
    assert licence is not None
    assert licence.provenance.certainty == "documented"
    assert licence.excludes(jurisdiction) == excluded


def test_a_country_is_excluded_by_its_common_code_as_well() -> None:
    licence = load.find_licence("tencent/HunyuanOCR")
    assert licence is not None
    assert licence.excludes("UK")
    assert licence.excludes("GB")


def test_the_longest_prefix_decides_a_licence_and_none_is_invented() -> None:
    research = load.find_licence("Qwen/Qwen2.5-VL-3B-Instruct")
    assert research is not None
    assert research.non_commercial
    assert load.find_licence("nobody/has-this-model") is None
