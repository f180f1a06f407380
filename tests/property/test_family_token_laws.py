"""What holds for every family, settings as in the conformance rows and any cap that the family offers."""

from bisect import bisect_left
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.conformance.families import Group, read_groups
from tests.conformance.vectors import DATA
from tests.property import families_without_rows
from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.sizing.tokens import BUILDERS, Cap, ImageRule, ImageTokens, ServerSettings, TokenRefusal
from vlm_operator.sizing.tokens.caps import tightest_cap
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS

SIDES = st.one_of(st.integers(1, 300), st.integers(1, 12_000))
SIZES = st.one_of(
    st.tuples(SIDES, SIDES),
    st.tuples(st.integers(1, 60), st.integers(1, 300)).map(lambda pair: (pair[0] * pair[1], pair[0])),
    st.tuples(st.integers(1, 60), st.integers(1, 300)).map(lambda pair: (pair[0], pair[0] * pair[1])),
)

SYMMETRIC = frozenset(
    {
        *("CanvasTiles", "CappedTiles", "ClampedGrid", "Covering", "CrossAttentionTiles", "EdgeTiles"),
        *("EmbeddingSoftTokens", "EncoderFixed", "Fixed", "LongSide", "LongestEdge", "NativeGrid", "PanScan"),
        *("PatchLimit", "PatchLimitOfChunks", "PooledCrops", "ScaledPatches", "SoftTokens", "SquareBudgetGrid"),
        *("ThinGrid", "Windows"),
    }
)
"""Rules under which an image takes as much lying as standing."""
TURNED = {
    "Anyres": ("llava_next_34b", (20, 398)),
    "AspectGrid": ("muse_glimmer", (51, 34)),
    "BaseView": ("deepseek_vl2_tiny", (359, 3028)),
    "BudgetGrid": ("paddleocr_vl", (4, 26)),
    "CodebookGrid": ("emu3", (879, 631)),
    "ComputedBudgetGrid": ("keye_vl_8b", (2, 21)),
    "DynamicHd": ("phi4_mm", (153, 4115)),
    "DynamicResolution": ("nemotron_nano_dynres_ml16k", (1974, 2262)),
    "FixedDummyBaseView": ("deepseek_ocr", (2965, 3581)),
    "HdTransform": ("microsoft/Phi-3.5-vision-instruct", (1210, 3737)),
    "ListedTiles": ("nemotron_nano_12b_v2_vl", (73, 63)),
    "OverlapCrops": ("molmo2_8b", (1903, 1810)),
    "PaddedCanvas": ("glm5_next", (2722, 3489)),
    "RootBudgetGrid": ("hunyuan_ocr", (3676, 57)),
    "RowEnds": ("deepseek_v41", (3826, 2306)),
    "SizedSlices": ("minicpm_v_4_7", (1, 279)),
    "Slices": ("minicpm_v_2_6", (78, 211)),
    "SwitchedBaseView": ("unlimited_ocr", (777, 3428)),
    "Tiles": ("internvl2_5_4b", (174, 100)),
    "TilesTwice": ("h2ovl", (1563, 3764)),
    "UpscaledPatches": ("inkling", (3631, 680)),
    "ViewOrTiles": ("lfm2_5_vl_1_6b", (380, 1695)),
}
"""The other rules: a family and an image that takes more, or runs more patches, one way than the other."""


@cache
def bound() -> tuple[tuple[Group, ImageRule], ...]:
    """Every group of rows whose settings the product accepts, and the families without rows, with their rules."""
    groups = read_groups(DATA, "image_tokens.jsonl") + families_without_rows.groups() + catalogued()
    rules = ((group, group.bind()) for group in groups)
    return tuple((group, rule) for group, rule in rules if not isinstance(rule, TokenRefusal))


@cache
def monotone() -> tuple[tuple[ImageRule, Cap], ...]:
    """The rules, shipped or as in the rows, whose cap is said to be monotone."""
    return tuple((rule, cap) for _, rule in bound() if (cap := rule.cap) and cap.monotone and cap.tighter)


def catalogued() -> list[Group]:
    """Return one group for each rule that binds a model of the catalogue, under the settings of its files."""
    cards = {BUILDERS[card.architecture].key: card for card in map(find_model, model_ids())}
    return [
        Group(
            name=card.id,
            family=card.id,
            architecture=card.architecture,
            settings=ServerSettings(),
            files={"config.json": card.config, "preprocessor_config.json": card.processor},
        )
        for card in cards.values()
    ]


def test_every_family_and_every_rule_is_here() -> None:
    families = {group.family for group in read_groups(DATA, "image_tokens.jsonl")}
    assert families | set(families_without_rows.FAMILIES) <= {group.family for group, _ in bound()}
    assert {BUILDERS[group.architecture].key for group, _ in bound()} == {rule.key for rule in BUILDERS.values()}


@st.composite
def capped(draw: st.DrawFn) -> tuple[Group, ImageRule]:
    """Return a group with its rule, often under a tighter cap than it came with."""
    group, rule = draw(st.sampled_from(bound()))
    if rule.cap is not None and rule.cap.tighter and draw(st.booleans()):
        rule = rule.with_cap(draw(st.sampled_from(rule.cap.tighter)))
    return group, rule


@given(capped(), SIZES)
@settings(max_examples=1500, deadline=None)
def test_a_count_is_positive_and_never_above_the_true_maximum(
    drawn: tuple[Group, ImageRule], size: tuple[int, int]
) -> None:
    group, rule = drawn
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    assert 0 < answer.embed_tokens <= rule.maximum().true_tokens, (group.name, rule.settings)
    assert answer.vit_patches > 0


@given(capped())
@settings(max_examples=400, deadline=None)
def test_the_largest_image_takes_the_true_maximum(drawn: tuple[Group, ImageRule]) -> None:
    group, rule = drawn
    maximum = rule.maximum()
    width, height = maximum.true_size
    assume(width * height <= MAX_DECODED_PIXELS)
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens), (group.name, answer)
    assert answer.embed_tokens == maximum.true_tokens, (group.name, rule.settings)


@given(capped())
@settings(max_examples=400, deadline=None)
def test_the_dummy_image_is_counted_like_any_other(drawn: tuple[Group, ImageRule]) -> None:
    group, rule = drawn
    maximum = rule.maximum()
    width, height = maximum.dummy_size
    assume(width * height <= MAX_DECODED_PIXELS)
    answer = rule.count_image(width, height)
    assert isinstance(answer, ImageTokens), (group.name, answer)
    assert (answer.embed_tokens, answer.vit_patches) == (maximum.dummy_tokens, maximum.dummy_patches), group.name
    assert maximum.dummy_tokens <= maximum.true_tokens


@given(capped(), SIZES)
@settings(max_examples=800, deadline=None)
def test_the_parts_sum_to_the_whole(drawn: tuple[Group, ImageRule], size: tuple[int, int]) -> None:
    group, rule = drawn
    answer = rule.count_image(*size)
    assume(isinstance(answer, ImageTokens))
    assert isinstance(answer, ImageTokens)
    parts = rule.parts(answer)
    embedded = sum(part.count * part.tokens for part in parts if part.embedded)
    others = sum(part.count * part.tokens for part in parts if not part.embedded)
    # Where the text reads the image through cross-attention the embedded tokens stay out of the prompt.
    outside = answer.prompt_tokens < answer.embed_tokens
    assert others + (0 if outside else embedded) == answer.prompt_tokens, (group.name, parts)
    assert embedded == answer.embed_tokens, (group.name, parts)
    assert all(part.count >= 0 and part.tokens >= 0 for part in parts), (group.name, parts)


@given(capped(), SIZES)
@settings(max_examples=800, deadline=None)
def test_the_settings_of_a_cap_give_the_counts_of_the_cap(
    drawn: tuple[Group, ImageRule], size: tuple[int, int]
) -> None:
    group, rule = drawn
    again = group.bind(rule.settings)
    assert not isinstance(again, TokenRefusal), (group.name, again.message)
    assert again.count_image(*size) == rule.count_image(*size), (group.name, rule.settings)
    assert again.maximum() == rule.maximum(), (group.name, rule.settings)


def work(rule: ImageRule, width: int, height: int) -> tuple[int, int] | str:
    answer = rule.count_image(width, height)
    return answer.reason if isinstance(answer, TokenRefusal) else (answer.embed_tokens, answer.vit_patches)


@given(st.sampled_from(range(10_000)), SIZES)
@settings(max_examples=600, deadline=None)
def test_turning_an_image_changes_nothing_where_the_rule_is_symmetric(which: int, size: tuple[int, int]) -> None:
    symmetric = [rule for _, rule in bound() if type(rule).__name__ in SYMMETRIC]
    rule = symmetric[which % len(symmetric)]
    assert work(rule, *size) == work(rule, *reversed(size)), (rule.model_id, rule.settings)


@pytest.mark.parametrize(("family", "size"), TURNED.values(), ids=TURNED)
def test_turning_an_image_can_change_its_count_under_the_other_rules(family: str, size: tuple[int, int]) -> None:
    rule = next(rule for group, rule in bound() if group.family == family)
    assert work(rule, *size) != work(rule, *reversed(size))


def test_every_rule_is_known_to_be_symmetric_or_not() -> None:
    assert not SYMMETRIC & TURNED.keys()
    assert {type(rule).__name__ for _, rule in bound()} == SYMMETRIC | TURNED.keys()


@given(st.sampled_from(range(10_000)), st.lists(SIZES, min_size=1, max_size=4), st.integers(1, 6_000_000))
@settings(max_examples=300, deadline=None)
def test_the_tightest_cap_keeps_the_pixels_asked_for_and_the_next_one_does_not(
    which: int, sizes: list[tuple[int, int]], min_pixels: int
) -> None:
    group, rule = bound()[which % len(bound())]
    tight = tightest_cap(rule, sizes, min_pixels=min_pixels)
    assume(tight is not None)
    assert tight is not None
    for size in sizes:
        before = rule.count_image(*size)
        if isinstance(before, ImageTokens):
            assert tight.kept_pixels(*size) >= min(rule.kept_pixels(*size), min_pixels), (group.name, tight.settings)
    assert rule.cap is not None
    assert tight.cap is not None
    below = rule.cap.tighter[: bisect_left(rule.cap.tighter, tight.cap.value)]
    accepted = [size for size in sizes if isinstance(rule.count_image(*size), ImageTokens)]
    if below and accepted:
        loose = rule.with_cap(below[-1])
        assert not all(
            isinstance(loose.count_image(*size), ImageTokens)
            and loose.kept_pixels(*size) >= min(rule.kept_pixels(*size), min_pixels)
            for size in accepted
        ), (group.name, below[-1])


@given(st.sampled_from(range(10_000)), st.data(), SIZES)
@settings(max_examples=500, deadline=None)
def test_a_larger_value_of_a_monotone_cap_never_keeps_less(
    which: int, data: st.DataObject, size: tuple[int, int]
) -> None:
    rule, cap = monotone()[which % len(monotone())]
    at = data.draw(st.integers(0, len(cap.tighter) - 1))
    more = data.draw(st.integers(at, min(len(cap.tighter) - 1, at + 3)) | st.integers(at, len(cap.tighter) - 1))
    low, high = (rule.with_cap(cap.tighter[index]) for index in (at, more))
    whole, fewer, many = (each.count_image(*size) for each in (rule, low, high))
    assume(isinstance(whole, ImageTokens) and isinstance(fewer, ImageTokens))
    assert isinstance(whole, ImageTokens)
    assert isinstance(fewer, ImageTokens)
    assert isinstance(many, ImageTokens), (rule.model_id, high.settings)
    # A small limit can stretch a thin image beyond what the rule's own limit keeps; no more than that is ever asked.
    assert min(fewer.embed_tokens, whole.embed_tokens) <= many.embed_tokens, (low.settings, high.settings)
    kept = min(low.kept_pixels(*size), rule.kept_pixels(*size))
    assert kept <= high.kept_pixels(*size), (low.settings, high.settings)


@given(capped(), st.lists(SIZES, max_size=5))
@settings(max_examples=200, deadline=None)
def test_many_images_are_counted_as_one_by_one(drawn: tuple[Group, ImageRule], sizes: list[tuple[int, int]]) -> None:
    _, rule = drawn
    assert rule.count_images(sizes) == [rule.count_image(*size) for size in sizes]


PIXEL_VALUES = {
    "do_convert_rgb": False,
    "do_normalize": False,
    "do_rescale": False,
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.4, 0.5, 0.6],
    "resample": 0,
    "rescale_factor": 0.125,
}


@pytest.mark.parametrize("name", PIXEL_VALUES)
def test_what_pixels_are_worth_is_refused_or_changes_no_count(name: str) -> None:
    for group, rule in bound():
        kwargs = {**group.settings.mm_processor_kwargs, name: PIXEL_VALUES[name]}
        again = group.bind(replace(group.settings, mm_processor_kwargs=kwargs))
        if isinstance(again, TokenRefusal):
            assert again.reason in {"UncheckedSetting", "SettingMismatch", "StartupFails"}, group.name
            assert name in again.message
            continue
        assert f"mm_processor_kwargs.{name}" in again.ignored_settings
        assert again.maximum() == rule.maximum()
        assert again.count_image(1654, 2339) == rule.count_image(1654, 2339)
