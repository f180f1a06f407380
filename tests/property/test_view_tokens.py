"""Laws of the rules that fill a budget, cut views or crops, or need two flags for their cap."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS
from vlm_operator.sizing.tokens.pan_scan import PanScan, PanScanShape
from vlm_operator.sizing.tokens.soft_tokens import SoftTokens, SoftTokenShape
from vlm_operator.sizing.tokens.view_or_tiles import ViewOrTiles, ViewShape

SHIPPED = ServerSettings()
SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))
SIZES = st.one_of(
    st.tuples(SIDES, SIDES),
    st.tuples(st.integers(1, 60), st.integers(1, 2000)).map(lambda pair: (pair[0] * pair[1], pair[0])),
)

FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "LlavaForConditionalGeneration": (
        {"vision_config": {"model_type": "pixtral", "image_size": 1024, "patch_size": 16}},
        {"size": {"longest_edge": 1024}},
    ),
    "LightOnOCRForConditionalGeneration": (
        {"spatial_merge_size": 2, "vision_config": {"image_size": 1540, "patch_size": 14}},
        {"size": {"longest_edge": 1540}},
    ),
    "Gemma4ForConditionalGeneration": ({"vision_config": {"default_output_length": 1120}}, {"max_soft_tokens": 1120}),
    "Gemma4UnifiedForConditionalGeneration": (
        {"vision_config": {"num_soft_tokens": 560}},
        {"image_processor": {"max_soft_tokens": 560}},
    ),
    "Lfm2VlForConditionalGeneration": ({}, {}),
}


@st.composite
def soft_tokens(draw: st.DrawFn) -> SoftTokens:
    shape = SoftTokenShape(
        patch_size=draw(st.sampled_from([14, 16])),
        pooling=draw(st.integers(1, 4)),
        budget=draw(st.sampled_from([70, 140, 280, 560, 1120])),
        patches_per_token=1,
    )
    return SoftTokens(settings=SHIPPED, model_id="", shape=shape)


@st.composite
def views_or_tiles(draw: st.DrawFn) -> ViewOrTiles:
    tile_tokens_a_side = draw(st.integers(4, 20))
    max_tokens = draw(st.integers(16, 600))
    least = draw(st.integers(1, 4))
    shape = ViewShape(
        unit=32,
        merge_size=2,
        min_tokens=draw(st.integers(1, 16)),
        max_tokens=max_tokens,
        tolerance=draw(st.floats(0.5, 4)),
        tile_size=32 * tile_tokens_a_side,
        min_tiles=least,
        max_tiles=draw(st.integers(least, 16)),
        longest_view=max(max_tokens, tile_tokens_a_side**2),
    )
    return ViewOrTiles(settings=SHIPPED, model_id="", shape=shape)


@st.composite
def pan_scans(draw: st.DrawFn) -> PanScan:
    shape = PanScanShape(
        tokens_per_view=256,
        patches_per_view=4096,
        enabled=draw(st.booleans()),
        max_crops=draw(st.integers(1, 12)),
        min_crop_size=draw(st.integers(1, 2000)),
        min_ratio=draw(st.floats(0.5, 9)),
    )
    return PanScan(settings=SHIPPED, model_id="", image_size=896, shape=shape)


RULES = st.one_of(soft_tokens(), views_or_tiles(), pan_scans())


@given(RULES, SIZES)
@settings(max_examples=600, deadline=None)
def test_no_image_takes_more_than_the_true_maximum(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    if isinstance(answer, ImageTokens):
        assert 0 < answer.embed_tokens <= rule.maximum().true_tokens


@given(RULES)
@settings(max_examples=400, deadline=None)
def test_the_largest_image_takes_the_true_maximum(rule: ImageRule) -> None:
    maximum = rule.maximum()
    width, height = maximum.true_size
    assert width * height <= MAX_DECODED_PIXELS
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens)
    assert answer.embed_tokens == maximum.true_tokens
    assert maximum.dummy_tokens <= maximum.true_tokens


@given(RULES, SIZES)
@settings(max_examples=400, deadline=None)
def test_the_parts_sum_to_the_whole(rule: ImageRule, size: tuple[int, int]) -> None:
    answer = rule.count_image(*size)
    if isinstance(answer, ImageTokens):
        parts = rule.parts(answer)
        assert sum(part.count * part.tokens for part in parts) == answer.prompt_tokens
        assert sum(part.count * part.tokens for part in parts if part.embedded) == answer.embed_tokens


@given(soft_tokens(), SIZES)
@settings(max_examples=400, deadline=None)
def test_a_larger_budget_never_keeps_fewer_pixels(rule: SoftTokens, size: tuple[int, int]) -> None:
    budgets = [*rule.cap.tighter, rule.shape.budget]
    kept = [rule.with_cap(budget).kept_pixels(*size) for budget in budgets]
    assert kept == sorted(kept)


@given(st.sampled_from(sorted(FILES)), st.data(), SIZES)
@settings(max_examples=200, deadline=None)
def test_a_capped_rule_counts_as_one_bound_with_its_settings(
    architecture: str, data: st.DataObject, size: tuple[int, int]
) -> None:
    config, processor = FILES[architecture]
    rule = bind_rule(architecture, config, processor)
    assert not isinstance(rule, TokenRefusal), rule.message
    assert rule.cap is not None
    capped = rule.with_cap(data.draw(st.sampled_from(rule.cap.tighter)))
    again = bind_rule(architecture, config, processor, capped.settings)
    assert not isinstance(again, TokenRefusal), again.message
    assert again.count_image(*size) == capped.count_image(*size)
    assert again.maximum() == capped.maximum()
    assert again.cap == capped.cap
