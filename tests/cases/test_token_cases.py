"""Public reports of images that were larger, or counted otherwise, than somebody thought."""

import pytest

from tests.cases import situations
from tests.cases.situations import declare, gpu_of, pictures, plan, rule_of, serve
from vlm_operator.catalogue.load import find_model
from vlm_operator.errors import InputError
from vlm_operator.report.status_plan import plan_status
from vlm_operator.sizing.launch import Launched, LaunchFlags
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.tokens.types import ImageTokens
from vlm_operator.sizing.tokens.video import VideoRule, VideoTokens, bind_video_rule

QWEN2_7B = "Qwen/Qwen2-VL-7B-Instruct"
QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN3_8B = "Qwen/Qwen3-VL-8B-Instruct"
GLM_OCR = "zai-org/GLM-OCR"


def tokens_of(model: str, width: int, height: int, **kwargs: object) -> int:
    counted = rule_of(model, **kwargs).count_image(width, height)
    assert isinstance(counted, ImageTokens), counted
    return counted.embed_tokens


def test_the_cap_is_the_servers_and_a_12_megapixel_photograph_is_accepted_under_it() -> None:
    """QwenLM/Qwen3-VL#946, #1434, vllm-project/vllm#11652: max_pixels of a request is ignored, 16,601 > 10,000."""
    assert tokens_of(QWEN2_7B, 1362, 1724) == 3038  # #1434: what the server counted, whatever the request asked for
    assert tokens_of(QWEN2_7B, 4032, 3024, max_pixels=1_003_520) <= 1280
    resource = declare(QWEN2_7B, pictures((4032, 3024)), quality={"minPixelsPerImage": 900_000})
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    flags = situations.flags_of(resource, verdict)
    cap = flags["--mm-processor-kwargs"]["max_pixels"]
    assert 900_000 <= cap <= 1_003_520
    assert verdict.tokens.image_max <= 1280
    assert verdict.tokens.request_max <= int(flags["--max-model-len"]) < 10_000
    assert "--trust-request-mm-kwargs" not in flags


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [(QWEN_7B, 26, 28, 6), (QWEN_7B, 332, 27, 12), (QWEN_7B, 500, 19, 18), (QWEN3_8B, 305, 30, 78)],
)
def test_images_with_a_side_under_one_token_are_scaled_up_and_counted(
    model: str, width: int, height: int, tokens: int
) -> None:
    """vllm-project/vllm#15080, #21109, #13655, ollama/ollama#13113: HTTP 500; the processor of 0.33.0 scales up."""
    assert tokens_of(model, width, height) == tokens
    verdict = plan(declare(model, pictures((width, height), (1024, 768))))
    assert isinstance(verdict, Plan)
    tiny = verdict.tokens.images[0]
    assert tiny.tokens == tokens
    assert min(tiny.resized or (0, 0)) >= {QWEN_7B: 28, QWEN3_8B: 32}[model]


def test_an_image_thinner_than_1_to_200_is_refused_before_a_server_exists() -> None:
    """The same reports: what the processor still raises on is refused by name, with what helps."""
    verdict = plan(declare(QWEN_7B, pictures((19, 4000))))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "AspectRatioTooExtreme"
    assert "crop the image" in verdict.message


@pytest.mark.parametrize(("width", "height", "tokens"), [(2366, 1402, 4200), (867, 6771, 6132)])
def test_a_page_is_bounded_by_the_pixel_limit_and_not_by_the_square(width: int, height: int, tokens: int) -> None:
    """zai-org/GLM-OCR#106, #67, #157, vllm-project/vllm#34040: item 4200 > cache 3721 = 61², 6132 > 6084 = 78²."""
    assert tokens_of(GLM_OCR, width, height) == tokens
    resource = declare(GLM_OCR, pictures((width, height)))
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    budget = next(limit for limit in verdict.limits if limit.name == "encoder budget")
    assert budget.needed == tokens <= budget.limit
    assert plan_status(verdict)["estimate"]["imageTokens"]["max"] == tokens


def test_the_largest_image_under_a_pixel_limit_is_a_rectangle_of_that_many_tokens() -> None:
    """The same reports: under 1,003,520 pixels a square takes 35² = 1,225 tokens, a rectangle 1,280."""
    most = rule_of(QWEN_7B, max_pixels=1_003_520).maximum()
    assert most.true_tokens == 1_003_520 // 28**2 == 1280
    width, height = most.true_size
    assert tokens_of(QWEN_7B, width, height, max_pixels=1_003_520) == 1280
    assert tokens_of(QWEN_7B, 4000, 4000, max_pixels=1_003_520) == 35**2


def test_no_plan_admits_an_image_that_its_encoder_could_never_take() -> None:
    """vllm-project/vllm#33110, #26223, #21798, #18329: an item above the encoder's budget hung the scheduler."""
    for model, size in ((QWEN2_7B, (4096, 4096)), ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", (4000, 1000))):
        resource = declare(model, pictures(size))
        verdict = plan(resource)
        assert isinstance(verdict, Plan), model
        budget = next(limit for limit in verdict.limits if limit.name == "encoder budget")
        assert budget.needed <= budget.limit
    old = plan(declare(QWEN2_7B, pictures((1024, 768)), engine={"version": "0.9.2"}))
    assert isinstance(old, NoFit)
    assert (old.reason, "0.9.2" in old.message) == ("Unservable", True)


@pytest.mark.parametrize("size", [(4032, 3024), (1654, 2339), (300, 200)])
def test_no_plan_reserves_more_for_one_image_than_its_context_holds(size: tuple[int, int]) -> None:
    """vllm-project/vllm#15802: min(64, 16384 // 32768) = 0 sequences, since a video was added to the image."""
    resource = declare(QWEN_7B, pictures(size), running=64, accelerators={"allowed": ["l40s"]})
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    flags = situations.flags_of(resource, verdict)
    assert flags["--limit-mm-per-prompt"]["video"] == 0
    largest = rule_of(QWEN_7B, **flags["--mm-processor-kwargs"]).maximum()
    assert max(largest.true_tokens, largest.engine_tokens) <= int(flags["--max-model-len"])
    assert int(flags["--max-num-seqs"]) >= 64 // verdict.replicas


def test_many_small_images_are_sized_by_their_own_tokens_and_not_by_the_largest_possible() -> None:
    """vllm-project/vllm#9805, #11842: 9 × 16,384 = 147,456 worst-case tokens against a context of 32,768."""
    resource = declare(QWEN2_7B, pictures((448, 448), count=9))
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    flags = situations.flags_of(resource, verdict)
    assert 9 * rule_of(QWEN2_7B).maximum().engine_tokens == 147_456
    assert verdict.tokens.request_max == 9 * (16 * 16 + 2) + 300 + 500
    assert verdict.tokens.request_max <= int(flags["--max-model-len"]) <= 32_768
    assert flags["--limit-mm-per-prompt"]["image"]["count"] == 9
    assert all(limit.needed <= limit.limit for limit in verdict.limits)  # no declared request is turned away


def test_images_that_are_sent_as_text_are_no_reason_for_a_larger_server() -> None:
    """InternLM/lmdeploy#3377, vllm-project/vllm#14557: two images of 2488 x 2048 as base64 text, 793,483 tokens."""
    assert 2 * tokens_of(QWEN_7B, 2488, 2048) == 12_994
    verdict = plan(declare(QWEN_7B, pictures((2488, 2048), count=2)))
    assert isinstance(verdict, Plan)
    assert verdict.tokens.request_max == 12_994 + 2 * 2 + 300 + 500
    assert 10 * verdict.flags.max_model_len < 793_483  # such a request is refused by the server, and never planned for


def test_a_video_is_sampled_by_the_server_and_none_is_let_in_that_nobody_planned_for() -> None:
    """vllm-project/vllm#11657, QwenLM/Qwen3-VL#806, XiaomiMiMo/MiMo-Embodied#5: 43,698 tokens of five seconds."""
    card = find_model(QWEN2_7B)
    rule = bind_video_rule(card.architecture, card.config, card.processor, model_id=card.id)
    assert isinstance(rule, VideoRule)
    clip, longer = rule.count_video(150, 30.0, 1920, 1080), rule.count_video(480, 30.0, 1920, 1080)
    assert isinstance(clip, VideoTokens)
    assert isinstance(longer, VideoTokens)
    frame = tokens_of(QWEN2_7B, 1920, 1080)
    assert (clip.frames, clip.embed_tokens) == (10, 5 * frame)  # two frames a second, two frames to a group
    assert (longer.frames, longer.embed_tokens) == (32, 16 * frame)  # the 32 frames of the report
    assert longer.embed_tokens > 32_768
    resource = declare(QWEN2_7B, pictures((1920, 1080)))
    verdict = plan(resource)
    assert isinstance(verdict, Plan)
    assert situations.flags_of(resource, verdict)["--limit-mm-per-prompt"]["video"] == 0
    with pytest.raises(InputError, match=r"spec\.workload\.video: video is not a field; known here: images"):
        declare(QWEN2_7B, pictures((1920, 1080)), workload={"video": {"width": 1920, "height": 1080}})


def test_two_long_videos_are_encoded_one_after_the_other() -> None:
    """vllm-project/vllm#41239, #40707, #51603: the encoder cache holds one largest item, whatever the limit says."""
    longest = {"videos_kwargs": {"size": {"longest_edge": 2 * 229_376 * 32**2, "shortest_edge": 4096}}}
    flags = LaunchFlags(max_model_len=262_144)
    launched = serve("Qwen/Qwen3.6-27B", gpu_of("h200-sxm"), videos=2, flags=flags, **longest).launch()
    assert isinstance(launched, Launched)
    assert launched.modality == "video"
    assert launched.budget.tokens == launched.request.engine_tokens == 229_376
    assert launched.budget.items_per_batch == launched.budget.tokens // 229_376 == 1
