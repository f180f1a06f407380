"""Step costs that tests can reckon with: straight lines of their inputs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearCosts:
    """Seconds of a step: a floor, and so much for each token, pair, token of context, patch and prepared megapixel."""

    floor: float = 0.005
    token: float = 1e-5
    pair: float = 1e-9
    context: float = 1e-8
    patch: float = 1e-5
    megapixel: float = 0.02
    prefill: float = 0.001
    front: float = 0.002

    def batch(self, tokens: int, sampled: int) -> float:
        return self.floor + tokens * self.token + sampled * 1e-6

    def prefill_attention(self, tokens: int, context: int) -> float:
        return self.pair * tokens * (context + tokens / 2)

    def prefill_overhead(self) -> float:
        return self.prefill

    def decode_attention(self, sequences: float, context: float) -> float:
        return self.context * context + sequences * 1e-6

    def encode(self, patches: int, pairs: int, images: int) -> float:
        return patches * self.patch + pairs * 1e-12 + images * 1e-5

    def preprocess(self, megapixels: float, patches: float) -> float:
        return self.megapixel * megapixels + patches * 1e-7

    def request(self) -> float:
        return self.front
