"""A model's own files become what the planner takes, so that a fine-tune of a known family needs no catalogue entry."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import make_resource
from tests.support.hub import qwen2_vl_tensors, real_files, real_models, safetensors_header, tensor
from vlm_operator.api import names
from vlm_operator.catalogue.load import class_defaults, find_model, model_ids
from vlm_operator.catalogue.types import ModelCard, StoredTensor
from vlm_operator.hub.card import describe_model
from vlm_operator.hub.class_defaults import complete_config
from vlm_operator.hub.config_map import read_config_map
from vlm_operator.hub.folder import read_folder
from vlm_operator.hub.types import ModelFiles, SourceRefusal
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.render.engine_args import render_engine_args
from vlm_operator.report.status_plan import plan_status
from vlm_operator.sizing.legality import derive_max_model_len
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.shape import ModelShape, read_shape
from vlm_operator.sizing.tokens import ImageRule, bind_rule
from vlm_operator.sizing.weights import weights_per_rank

AIN = "MBZUAI/AIN"
MEDGEMMA = "google/medgemma-27b-it"
REASON2 = "nvidia/Cosmos-Reason2-8B"
LLAVA = "llava-hf/llava-1.5-7b-hf"
LOGICS = "Logics-MLLM/Logics-Thinking"
SHA = "0123456789abcdef0123456789abcdef01234567"


def described(model_id: str, files: dict[str, Any], tensors: tuple[StoredTensor, ...] = ()) -> ModelCard:
    found = describe_model(
        model_id, ModelFiles(documents=files, tensors=tensors, origin="https://hub.example", revision=SHA)
    )
    assert isinstance(found, ModelCard), found
    return found


def shape_of(card: ModelCard) -> ModelShape:
    found = read_shape(card.architecture, card.config)
    assert isinstance(found, ModelShape), found
    return found


def tokens_of(card: ModelCard, width: int, height: int) -> int:
    rule = bind_rule(card.architecture, card.config, card.processor, model_id=card.id)
    assert isinstance(rule, ImageRule), rule
    count = rule.count_image(width, height)
    assert hasattr(count, "embed_tokens"), count
    return count.embed_tokens


@pytest.mark.parametrize(
    ("model_id", "served_share"),
    [
        (MEDGEMMA, 1),  # saved by transformers 4.54 with every section written out
        (AIN, 0.5),  # stored in float32 under a vision_config that names three values
    ],
)
def test_a_fine_tune_has_the_bytes_of_its_published_files(model_id: str, served_share: float) -> None:
    assert model_id not in model_ids()
    shape = shape_of(described(model_id, real_files(model_id)))
    assert weights_per_rank(shape, 1).parameter_bytes == real_models()[model_id]["total_size"] * served_share


def test_a_fine_tune_is_counted_and_shaped_as_its_family() -> None:
    fine_tune, family = described(REASON2, real_files(REASON2)), find_model("Qwen/Qwen3-VL-8B-Instruct")
    assert (shape_of(fine_tune).text.layers, shape_of(fine_tune).deepstack_levels) == (36, 3)
    assert weights_per_rank(shape_of(fine_tune), 4) == weights_per_rank(shape_of(family), 4)
    assert tokens_of(fine_tune, 1654, 2339) == tokens_of(family, 1654, 2339)


def test_the_layers_that_llava_does_not_name_are_those_of_its_class() -> None:
    config = real_files(LLAVA)["config.json"]
    assert "num_hidden_layers" not in config["text_config"]
    card = described("someone/llava-1.5-invoices", real_files(LLAVA))
    assert card.config["text_config"]["num_hidden_layers"] == 32
    assert card.config["text_config"]["max_position_embeddings"] == 4096  # the file's own, not the class's 2048
    assert any("models/llama/configuration_llama.py" in source for source in card.config_provenance.source)
    shape = shape_of(card)
    assert shape.text == shape_of(find_model(LLAVA)).text
    # The engine leaves out the last layer of the tower, which the published size has.
    assert weights_per_rank(shape, 1).parameter_bytes == pytest.approx(real_models()[LLAVA]["total_size"], rel=0.002)
    assert tokens_of(card, 1024, 768) == 576


def test_a_file_of_gemma_3_that_names_only_what_differs_has_the_published_size() -> None:
    # As Gemma-3-4B was first published: no heads, no vocabulary (4,300,079,472 parameters on the hub).
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    vision = dict(real_files(MEDGEMMA)["config.json"]["vision_config"])
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "mm_tokens_per_image": 256,
        "text_config": {**text, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
        "vision_config": vision,
    }
    shape = shape_of(described("someone/gemma-3-4b-invoices", {"config.json": config}))
    assert weights_per_rank(shape, 1).parameter_bytes == 2 * 4_300_079_472


def test_a_file_that_newer_transformers_nested_is_the_same_model() -> None:
    flat = real_files(AIN)["config.json"]
    outer = {"architectures", "model_type", "vision_config", "image_token_id", "video_token_id", "transformers_version"}
    inner = {key: value for key, value in flat.items() if key not in outer}
    nested = {key: value for key, value in flat.items() if key in outer}
    nested["text_config"] = {**inner, "model_type": "qwen2_vl_text"}
    before, after = (described(AIN, {**real_files(AIN), "config.json": config}) for config in (flat, nested))
    assert shape_of(after) == shape_of(before)
    assert derive_max_model_len(after.config, None) == derive_max_model_len(before.config, None)
    assert tokens_of(after, 1654, 2339) == tokens_of(before, 1654, 2339)


def test_a_missing_vision_section_is_that_of_the_whole_class() -> None:
    config = dict(real_files(LLAVA)["config.json"])
    written = config.pop("vision_config")
    completed, _ = complete_config(config)
    assert {key: completed["vision_config"][key] for key in written} == written


def test_a_section_that_is_there_has_the_defaults_of_its_own_class() -> None:
    # transformers makes CLIPVisionConfig of it, whose width is not that of LLaVA's tower.
    completed, _ = complete_config({"model_type": "llava", "vision_config": {"image_size": 336}})
    assert completed["vision_config"]["hidden_size"] == 768
    assert completed["vision_config"]["model_type"] == "clip_vision_model"


def test_what_a_file_says_stays_null_included() -> None:
    text = {"model_type": "mistral", "sliding_window": None, "hidden_size": 5120}
    completed, _ = complete_config({"model_type": "llava_next", "text_config": text})
    assert completed["text_config"]["sliding_window"] is None
    assert completed["text_config"]["hidden_size"] == 5120


def test_values_at_the_top_of_an_older_file_are_not_pushed_aside() -> None:
    config = real_files(AIN)["config.json"]
    assert "text_config" not in complete_config(config)[0]


def test_a_file_of_an_unknown_class_is_left_as_it_is() -> None:
    config = {"model_type": "future_vl", "text_config": {"model_type": "future"}}
    assert complete_config(config) == (config, ())


def test_no_complete_file_is_changed_by_class_defaults() -> None:
    cards = [find_model(model_id) for model_id in model_ids()]
    read = [(c.id, read_shape(c.architecture, c.config), complete_config(c.config)[0], c.architecture) for c in cards]
    changed = [name for name, shape, completed, architecture in read if read_shape(architecture, completed) != shape]
    assert changed == []


def test_every_class_default_has_its_source() -> None:
    defaults = class_defaults()
    sources = [part.source for part in defaults.parts.values()] + [whole.source for whole in defaults.whole.values()]
    assert all(source.startswith("models/") for source in sources)
    for whole in defaults.whole.values():
        assert {section.model_type for section in whole.sections.values()} <= defaults.parts.keys()


def test_a_section_of_the_processor_file_replaces_the_older_file() -> None:
    files = {
        **real_files(AIN),
        "preprocessor_config.json": {"max_pixels": 1, "only_here": 2},
        "processor_config.json": {"image_processor": {"max_pixels": 3}, "processor_class": "P"},
        "video_preprocessor_config.json": {"fps": 4},
    }
    processor = described(AIN, files).processor
    assert processor == {
        "image_processor": {"max_pixels": 3},
        "processor_class": "P",
        "video_processor": {"fps": 4},
    }


def test_values_of_both_processor_files_are_known() -> None:
    processor = described(LLAVA, real_files(LLAVA)).processor
    assert processor["crop_size"] == {"height": 336, "width": 336}
    assert processor["patch_size"] == 14


def test_the_quantisation_of_older_exports_is_found_in_its_own_file() -> None:
    export = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    plain, packed = (described(AIN, {**real_files(AIN), **extra}) for extra in ({}, {"hf_quant_config.json": export}))
    quantisation = shape_of(packed).quantisation
    assert quantisation is not None
    assert quantisation.method == "modelopt_fp4"
    assert weights_per_rank(shape_of(packed), 1).mlp < weights_per_rank(shape_of(plain), 1).mlp / 3


def test_mistrals_own_file_counts_like_the_twin_that_the_catalogue_has() -> None:
    twin = find_model("mistralai/Pixtral-12B-2409")
    card = described("someone/pixtral", {"params.json": twin.config["_mistral_params"]})
    assert card.architecture == "PixtralForConditionalGeneration"
    assert tokens_of(card, 1280, 960) == tokens_of(twin, 1280, 960)
    assert card.config["text_config"]["num_hidden_layers"] == twin.config["text_config"]["num_hidden_layers"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no config.json"),
        ({"params.json": {"dim": 1}}, "vision_encoder"),
        ({"config.json": {"model_type": "qwen2_vl"}}, "without architectures"),
        ({"config.json": {"architectures": "Qwen2VL"}}, "without architectures"),
    ],
)
def test_files_that_describe_no_model_are_refused(files: dict[str, Any], words: str) -> None:
    found = describe_model(AIN, ModelFiles(documents=files, origin="ConfigMap invoices"))
    assert isinstance(found, SourceRefusal)
    assert found.reason == names.REASON_MODEL_FILES_INVALID
    assert words in found.message
    assert "ConfigMap invoices" in found.message


def config_map(**data: Any) -> dict[str, Any]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in data.items()}
    return {"metadata": {"name": "ain"}, "data": texts}


def test_a_config_map_describes_the_model_like_the_hub() -> None:
    tensors = {one.name: {"dtype": one.dtype, "shape": list(one.shape)} for one in _tensors(AIN)}
    files = read_config_map(config_map(**real_files(AIN), **{"tensors.json": tensors, "README": "text"}))
    assert isinstance(files, ModelFiles)
    assert files.tensors == _tensors(AIN)
    assert files.documents == real_files(AIN)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"config.json": "{"}, "config.json is not JSON"),
        ({"config.json": "[]"}, "holds no JSON object"),
        ({"tensors.json": {"a": {"dtype": "Q7", "shape": [1]}}}, "'Q7'"),
        ({"tensors.json": {"a": {"dtype": "BF16"}}}, "'shape'"),
        ({"tensors.json": {"a": {"dtype": "BF16", "shape": [8, -8]}}}, "a side below zero"),
        ({"tensors.json": {"a": {"dtype": "BF16", "shape": [float("inf")]}}}, "infinity"),
    ],
)
def test_a_config_map_that_is_wrong_says_where(data: dict[str, Any], words: str) -> None:
    found = read_config_map(config_map(**data))
    assert isinstance(found, SourceRefusal)
    assert found.message.startswith("ConfigMap ain")
    assert words in found.message


def test_a_folder_describes_the_model_like_the_hub(tmp_path: Path) -> None:
    for name, document in real_files(AIN).items():
        (tmp_path / name).write_text(json.dumps(document))
    (tmp_path / "model.safetensors").write_bytes(safetensors_header(_tensors(AIN)))
    files = read_folder(tmp_path)
    assert isinstance(files, ModelFiles)
    assert files.documents == real_files(AIN)
    assert files.tensors == _tensors(AIN)


@pytest.mark.parametrize(("name", "content"), [("config.json", "{"), ("model.safetensors", "short")])
def test_a_folder_that_is_wrong_says_which_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    found = read_folder(tmp_path)
    assert isinstance(found, SourceRefusal)
    assert str(tmp_path / name) in found.message


def _tensors(model_id: str) -> tuple[StoredTensor, ...]:
    return tuple(qwen2_vl_tensors(real_files(model_id)["config.json"], "F32"))


def plan(card: ModelCard, **spec: Any) -> Plan | NoFit:
    model = {"id": card.id, "revision": "main", "source": "Hub"}
    return plan_deployment(make_resource(model=model, **spec).spec, catalogue_inventory(), card, simulate=False)


def test_the_engine_gets_the_commit_that_was_planned_for() -> None:
    planned = plan(described(AIN, real_files(AIN), _tensors(AIN)))
    assert isinstance(planned, Plan), planned
    assert planned.model_revision == SHA
    assert plan_status(planned)["plan"]["modelRevision"] == SHA
    spec = make_resource(model={"id": AIN, "revision": "main", "source": "Hub"}).spec
    arguments = render_engine_args(spec, planned)
    assert arguments[0] == AIN
    assert arguments[arguments.index("--revision") + 1] == SHA


def test_a_plan_says_that_the_headers_confirm_its_weights() -> None:
    confirmed = plan(described(AIN, real_files(AIN), _tensors(AIN)))
    unknown = plan(described(AIN, real_files(AIN)))
    assert isinstance(confirmed, Plan)
    assert isinstance(unknown, Plan)
    assert "weights of 15.44 GiB are confirmed by the headers of the checkpoint's files" in confirmed.reasons
    assert confirmed.memory == unknown.memory
    assert not any("headers" in reason for reason in unknown.reasons)


def test_what_the_checkpoint_holds_beyond_its_configuration_is_planned_for() -> None:
    extra = tensor("model.extra_head.weight", 2**29)  # 1 GiB
    plain = plan(described(AIN, real_files(AIN), _tensors(AIN)))
    larger = plan(described(AIN, real_files(AIN), (*_tensors(AIN), extra)))
    assert isinstance(plain, Plan)
    assert isinstance(larger, Plan)
    assert any("the larger is planned" in reason for reason in larger.reasons)
    if larger.gpu == plain.gpu and larger.gpus_per_replica == plain.gpus_per_replica:
        grown = larger.memory.part("weights").size_bytes - plain.memory.part("weights").size_bytes
        assert grown == pytest.approx(2**30, rel=0.01)


def test_weights_that_are_not_those_of_the_configuration_are_refused() -> None:
    half = _tensors(AIN)[::2]
    refused = plan(described(AIN, real_files(AIN), half))
    assert isinstance(refused, NoFit)
    assert refused.reason == names.REASON_UNSERVABLE
    assert "GiB" in refused.message
    assert "tensors are missing" in refused.message


def test_an_architecture_that_nobody_knows_is_refused_by_name() -> None:
    refused = plan(described(LOGICS, real_files(LOGICS)))
    assert isinstance(refused, NoFit)
    assert refused.reason == names.REASON_UNSERVABLE
    assert refused.message.startswith("LogicsForConditionalGeneration")
