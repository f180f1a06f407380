"""What requests ask: text, images and output, as distributions from which single requests are drawn.

Randomness comes only from the generator that the caller hands in; ``random.Random`` is one.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Protocol

REPEAT_POOL: Final = 100
"""A repeated image is one of so many that were sent last (assumed: ``repeatPercent`` does not say how long ago)."""


class Randomness(Protocol):
    """The part of ``random.Random`` that is used."""

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of token counts by its quantiles, straight lines between them.

    ``points`` are (share of requests, tokens), both growing, the first share 0 and the last 1.
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        """Every request has this many tokens."""
        return cls(points=((0.0, tokens), (1.0, tokens)))

    @classmethod
    def between(cls, low: float, high: float) -> "Lengths":
        """All counts from ``low`` to ``high`` are equally likely."""
        return cls(points=((0.0, low), (1.0, high)))

    def at(self, share: float) -> int:
        """Return the tokens that this share of the requests does not exceed."""
        points = self.points
        place = min(max(bisect_left(points, (share,)), 1), len(points) - 1)
        (low, least), (high, most) = points[place - 1], points[place]
        width = high - low
        return round(least + (most - least) * (share - low) / width) if width else round(most)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageWork:
    """One image: what it costs to prepare, to encode and to prefill.

    Attributes:
        megapixels: As sent, before any resizing.
        patches: Patches that the vision tower takes.
        span: Patches that attend to each other: all of them, or those of one tile.
        embeddings: Image tokens that the encoder produces; they count against its budget and its cache.
        prompt_tokens: Tokens of the prompt, separators included.
    """

    megapixels: float
    patches: int
    span: int
    embeddings: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """Requests with the same images, or the same number of drawn ones; ``weight`` is relative to the other kinds.

    ``drawn`` images come from the mix's ``sizes``, each independently.
    """

    weight: float
    text: Lengths
    output: Lengths
    images: tuple[ImageWork, ...] = ()
    drawn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMix:
    """What clients send.

    Attributes:
        sizes: Images that are drawn, with relative weights.
        shared_prefix_tokens: Text that begins every prompt (a system prompt): cached after the first request.
        repeat_share: Share of images that were sent before, evenly among the last ``repeat_pool`` images.
    """

    kinds: tuple[RequestKind, ...]
    sizes: tuple[tuple[float, ImageWork], ...] = ()
    shared_prefix_tokens: int = 0
    repeat_share: float = 0.0
    repeat_pool: int = REPEAT_POOL


@dataclass(slots=True)
class Request:
    """One drawn request and what has become of it; times in seconds since the start, 0 where not reached.

    ``chains`` name what the prompt begins with: the first image, the first two, and so on; none where no image ever
    comes again.
    """

    text_tokens: int
    output_tokens: int
    images: tuple[ImageWork, ...]
    image_ids: tuple[int, ...]
    chains: tuple[int, ...]
    prompt_tokens: int
    arrived: float = 0.0
    ready: float = 0.0
    prepare: float = 0.0
    admitted: float = -1.0
    first_token: float = 0.0
    finished: float = 0.0
    preemptions: int = 0
    # The engine's notes: ``target`` tokens are to be computed, ``encoded`` images of ``encoded_tokens`` tokens are
    # encoded, ``end`` is the decode step of the last token, ``held`` are encoder outputs in use (end in the prompt,
    # image, tokens).
    computed: int = 0
    generated: int = 0
    target: int = 0
    encoded: int = 0
    encoded_tokens: int = 0
    blocks: int = 0
    end: int = 0
    held: list[tuple[int, int, int]] = field(default_factory=list)


class Draw:
    """Draws requests of a mix, one after the other."""

    def __init__(self, mix: RequestMix, generator: Randomness) -> None:
        self._mix = mix
        self._random = generator.random
        self._weights = list(accumulate(kind.weight for kind in mix.kinds))
        self._sizes = [image for _, image in mix.sizes]
        self._size_weights = list(accumulate(weight for weight, _ in mix.sizes))
        self._sent: list[tuple[int, ImageWork]] = []
        self._next_id = 0
        self._chains: dict[tuple[int, int], int] = {}

    def __call__(self, arrived: float) -> Request:
        """Return the next request."""
        draw = self._random
        kinds, weights = self._mix.kinds, self._weights
        kind = kinds[0] if len(kinds) == 1 else kinds[bisect_right(weights, draw() * weights[-1], hi=len(kinds) - 1)]
        images, ids = self._images(kind.images + self._drawn(kind.drawn))
        text = kind.text.at(draw())
        prompt = text + self._mix.shared_prefix_tokens + sum(image.prompt_tokens for image in images)
        return Request(
            text_tokens=text,
            output_tokens=max(1, kind.output.at(draw())),
            images=images,
            image_ids=ids,
            chains=self._chains_of(ids),
            prompt_tokens=max(1, prompt),
            target=max(1, prompt),
            arrived=arrived,
        )

    def _chains_of(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return a number for each beginning of ``ids``, the same for the same beginning."""
        if not self._mix.repeat_share:
            return ()
        chains, chain = self._chains, 0
        found = []
        for name in ids:
            chain = chains.setdefault((chain, name), len(chains) + 1)
            found.append(chain)
        return tuple(found)

    def _drawn(self, number: int) -> tuple[ImageWork, ...]:
        """Return ``number`` images of the mix's sizes."""
        sizes, weights = self._sizes, self._size_weights
        if len(sizes) == 1:
            return (sizes[0],) * number
        last = len(sizes) - 1
        return tuple(sizes[bisect_right(weights, self._random() * weights[-1], hi=last)] for _ in range(number))

    def _images(self, images: tuple[ImageWork, ...]) -> tuple[tuple[ImageWork, ...], tuple[int, ...]]:
        """Return the images with their identities; some are ones that were sent before."""
        share = self._mix.repeat_share
        found: list[tuple[int, ImageWork]] = []
        for image in images:
            pool = self._sent
            if share and pool and self._random() < share:
                found.append(pool[int(self._random() * len(pool))])
                continue
            self._next_id += 1
            found.append((self._next_id, image))
            if share:
                pool.append(found[-1])
                if len(pool) > self._mix.repeat_pool:
                    del pool[0]
        return tuple(image for _, image in found), tuple(number for number, _ in found)
