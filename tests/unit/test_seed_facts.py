"""The numbers that were known before the first line of code, through the product's own doors."""

import pytest

from vlm_operator.api.validate import parse_resource
from vlm_operator.catalogue.load import find_model
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing.kv_cache import kv_bytes_per_token
from vlm_operator.sizing.plan import NoFit
from vlm_operator.sizing.shape import ModelShape, read_shape
from vlm_operator.sizing.tokens import ImageTokens, ServerSettings, TokenRefusal, bind_rule
from vlm_operator.sizing.weights import count_parameters
from vlm_operator.units import GIB

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN_72B = "Qwen/Qwen2.5-VL-72B-Instruct"
LLAVA = "llava-hf/llava-1.5-7b-hf"
CAP = {"max_pixels": 1280 * 28 * 28}


def shape_of(model: str) -> ModelShape:
    card = find_model(model)
    shape = read_shape(card.architecture, card.config)
    assert isinstance(shape, ModelShape)
    return shape


def count(model: str, width: int, height: int, kwargs: dict[str, int]) -> ImageTokens:
    card = find_model(model)
    settings = ServerSettings(mm_processor_kwargs=kwargs)
    rule = bind_rule(card.architecture, card.config, card.processor, settings, card.id)
    assert not isinstance(rule, TokenRefusal)
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens)
    return answer


@pytest.mark.parametrize(
    ("model", "width", "height", "kwargs", "tokens"),
    [
        (QWEN_7B, 1024, 1024, {}, 1_369),
        (QWEN_7B, 3840, 2160, {}, 10_549),
        (QWEN_72B, 3840, 2160, {}, 10_549),
        (QWEN_7B, 4032, 3024, {}, 15_552),
        (QWEN_7B, 4032, 3024, CAP, 1_230),
        (QWEN_7B, 1920, 1080, CAP, 1_222),
        ("Qwen/Qwen2-VL-7B-Instruct", 224, 224, {}, 64),
        (LLAVA, 1, 1, {}, 576),
        (LLAVA, 8000, 6000, {}, 576),
    ],
)
def test_tokens_of_an_image(model: str, width: int, height: int, kwargs: dict[str, int], tokens: int) -> None:
    assert count(model, width, height, kwargs).embed_tokens == tokens


def test_qwen2_vl_adds_a_start_and_an_end() -> None:
    assert count("Qwen/Qwen2-VL-7B-Instruct", 224, 224, {}).prompt_tokens == 64 + 2


@pytest.mark.parametrize(("model", "size"), [(QWEN_7B, 57_344), (QWEN_72B, 327_680), (LLAVA, 524_288)])
def test_kv_bytes_per_token(model: str, size: int) -> None:
    assert kv_bytes_per_token(shape_of(model), 1) == size


@pytest.mark.parametrize(("model", "parameters"), [(QWEN_7B, 8_292_166_656), (QWEN_72B, 73_410_777_344)])
def test_parameters_counted_from_the_configuration(model: str, parameters: int) -> None:
    assert count_parameters(shape_of(model)).total == parameters


@pytest.mark.parametrize(("kwargs", "tokens", "gib"), [({}, 63_016, 107.7), (CAP, 5_728, 9.8)])
def test_32_requests_of_four_photos(kwargs: dict[str, int], tokens: int, gib: float) -> None:
    request = 4 * count(QWEN_7B, 4032, 3024, kwargs).prompt_tokens + 300 + 500
    assert request == tokens
    assert round(32 * request * kv_bytes_per_token(shape_of(QWEN_7B), 1) / GIB, 1) == gib


def test_llama_3_2_vision_is_refused_with_its_last_engine() -> None:
    document = {
        "apiVersion": "vlm-operator.dev/v1alpha1",
        "kind": "VLMDeployment",
        "metadata": {"name": "dropped"},
        "spec": {
            "model": {"id": "meta-llama/Llama-3.2-11B-Vision-Instruct"},
            "workload": {
                "images": {"sizes": [{"width": 1024, "height": 1024}]},
                "text": {"promptTokens": {"p50": 300, "p99": 300}},
                "output": {"tokens": {"p50": 500, "max": 500}},
                "traffic": {"concurrentRequests": 8},
            },
        },
    }
    verdict = plan_deployment(parse_resource(document).spec, catalogue_inventory())
    assert isinstance(verdict, NoFit)
    assert "0.33.0" in verdict.message
    assert "0.10.2" in verdict.message
