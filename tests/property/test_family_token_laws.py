"""What holds for every family, settings as in the conformance rows and any cap that the family offers."""

from functools import cache

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


@given(st.sampled_from(range(10_000)), st.lists(SIZES, min_size=1, max_size=4), st.integers(1, 6_000_000))
@settings(max_examples=300, deadline=None)
def test_the_tightest_cap_keeps_the_pixels_asked_for(which: int, sizes: list[tuple[int, int]], min_pixels: int) -> None:
    group, rule = bound()[which % len(bound())]
    tight = tightest_cap(rule, sizes, min_pixels=min_pixels)
    assume(tight is not None)
    assert tight is not None
    for size in sizes:
        before = rule.count_image(*size)
        if isinstance(before, ImageTokens):
            assert tight.kept_pixels(*size) >= min(rule.kept_pixels(*size), min_pixels), (group.name, tight.settings)


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
