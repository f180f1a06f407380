"""The scheduler of one replica, step by step where requests are prefilled and in one leap where they only decode.

Rules (``v1/core/sched/scheduler.py``, fact sheet 4.5): running requests come first, then waiting ones in order of
arrival while tokens, sequences and KV blocks last; a prompt is admitted when all its blocks fit and is computed in
chunks; an image is encoded whole in the step that first touches it; when a decode finds no block, the request admitted
last is preempted and computed anew.

Kept simple: the blocks of a shared system prompt are counted once and never evicted; those that repeated images share
with a running request are counted for each, so sharing saves work but no blocks.
"""

from collections import deque
from heapq import heappop, heappush
from math import ceil, inf, sqrt
from typing import Final, Literal, Protocol

from vlm_operator.sizing.traffic.caches import EncoderCache, PrefixCache
from vlm_operator.sizing.traffic.requests import ImageWork, Request
from vlm_operator.sizing.traffic.server import ServerLimits

KV_LEVELS: Final = 200
"""Parts of the KV cache in which its use is told."""

Cause = Literal["none", "KV cache", "running sequences", "batch tokens", "encoder budget"]


class StepSeconds(Protocol):
    """What steps cost, in seconds; ``sizing.latency.StepModel`` is one."""

    def batch(self, tokens: int, sampled: int) -> float:
        """A step over ``tokens`` tokens, without attention; ``sampled`` of them need logits."""
        ...

    def prefill_attention(self, tokens: int, context: int) -> float:
        """Attention of a chunk of ``tokens`` behind ``context`` computed ones."""
        ...

    def prefill_overhead(self) -> float:
        """What a step with any prefill takes beside its work."""
        ...

    def decode_attention(self, sequences: float, context: float) -> float:
        """Attention of one decode step; ``context`` is the sum over sequences. Linear in both."""
        ...

    def encode(self, patches: int, pairs: int, images: int) -> float:
        """Vision tower over images of ``patches`` in all; ``pairs`` is the sum of patches times span."""
        ...


class _Batch:
    """What one step computes beside decodes."""

    __slots__ = ("attention", "chunks", "complete", "encoder_left", "images", "pairs", "patches", "tokens")

    def __init__(self, encoder_tokens: int) -> None:
        self.chunks: list[Request] = []
        self.tokens = self.complete = self.patches = self.pairs = self.images = 0
        self.attention = 0.0
        self.encoder_left = encoder_tokens


class Engine:
    """The state of one replica. ``now`` is in seconds; waiting requests are in the order in which they came."""

    def __init__(self, limits: ServerLimits, costs: StepSeconds, shared_prefix_tokens: int = 0) -> None:
        self.limits = limits
        self.costs = costs
        self.now = 0.0
        self.busy = 0.0
        self.free = limits.kv.total
        self.allocated = 0
        self.preemptions = 0
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.decoding: dict[int, Request] = {}
        self.finished: list[Request] = []
        self.rejected: list[Request] = []
        self.blocked: Cause = "none"
        self.waited: dict[Cause, float] = {}
        self.kv_seconds = [0.0] * (KV_LEVELS + 1)
        self._step = 0
        self._context = 0
        self._ends: list[tuple[int, int, Request]] = []
        self._phases = [0] * limits.kv.block_tokens
        self._serial = 0
        self._reserve = 0
        self._prefix = PrefixCache()
        self._shared = shared_prefix_tokens // limits.kv.block_tokens * limits.kv.block_tokens
        self._shared_cached = False
        self._encoder = EncoderCache(limits.encoder_tokens)

    @property
    def idle(self) -> bool:
        """Whether nothing is running or waiting."""
        return not (self.waiting or self.prefilling or self.decoding)

    def advance(self, until: float) -> None:
        """Run one step, or as many decode steps as pass before ``until`` or until something changes."""
        if self.prefilling or (self.waiting and len(self.decoding) < self.limits.max_num_seqs):
            if self._mixed_step():
                return
        elif self.waiting:
            self.blocked = "running sequences"
        if self.decoding:
            self._decode(inf if self.waiting else until)
        elif self.waiting:  # nothing runs and the first request still does not fit: it never will
            self.rejected.append(self.waiting.popleft())

    def _mixed_step(self) -> bool:
        """Run one step with prefills; False where none could be scheduled."""
        batch = self._schedule()
        if not batch.chunks:
            return False
        count = len(self.decoding)
        costs = self.costs
        seconds = batch.attention + costs.batch(batch.tokens + count, batch.complete + count) + costs.prefill_overhead()
        if count:
            seconds += costs.decode_attention(count, self._context)
        if batch.images:
            seconds += costs.encode(batch.patches, batch.pairs, batch.images)
        self._pass(seconds, 1)
        self._settle(batch.chunks)
        return True

    def _schedule(self) -> _Batch:
        """Choose the chunks of the next step: running prompts first, then waiting ones in their order."""
        kept = self._blocks_for_decode()
        self._reserve = self._blocks_in(1)
        budget = self.limits.max_num_batched_tokens - len(self.decoding)
        batch = _Batch(self.limits.encoder_tokens)
        self.blocked = "none" if kept else "KV cache"
        index = 0
        while budget > 0:
            fresh = index >= len(self.prefilling)
            if fresh and not (kept and self._admit()):
                break
            request = self.prefilling[index]
            chunk = self._chunk(request, budget, batch)
            if chunk <= 0:
                self.blocked = "encoder budget"
                if fresh:
                    self._requeue(request)
                    break
                index += 1
                continue
            batch.attention += self.costs.prefill_attention(chunk, request.computed)
            request.computed += chunk
            batch.complete += request.computed >= request.target
            batch.chunks.append(request)
            batch.tokens += chunk
            budget -= chunk
            index += 1
        if self.waiting and budget <= 0:
            self.blocked = "batch tokens"
        return batch

    def _admit(self) -> bool:
        """Move the first waiting request to the running ones if its whole prompt fits."""
        if not self.waiting:
            return False
        if len(self.decoding) + len(self.prefilling) >= self.limits.max_num_seqs:
            self.blocked = "running sequences"
            return False
        request = self.waiting[0]
        shared = self._shared if self._shared_cached else 0
        blocks = self.limits.kv.blocks_for(request.target - shared)
        if blocks > self.free - self._reserve:
            self.blocked = "KV cache"
            return False
        self.waiting.popleft()
        if request.admitted < 0:
            request.admitted = self.now
        self.free -= blocks
        self.allocated += blocks
        request.blocks = blocks
        request.computed = min(self._cached_tokens(request), request.target - 1)
        request.encoded = request.encoded_tokens = 0
        self.prefilling.append(request)
        return True

    def _cached_tokens(self, request: Request) -> int:
        """Tokens at the beginning of the prompt whose KV is there already, in whole blocks."""
        if not self.limits.prefix_caching:
            return 0
        found = self._shared if self._shared_cached else 0
        if not found and self._shared:
            return 0
        reach = self._shared
        for image, chain in zip(request.images, request.chains, strict=False):
            if not self._prefix.holds(chain, self.allocated):
                break
            reach += image.prompt_tokens
            found = reach // self.limits.kv.block_tokens * self.limits.kv.block_tokens
        return found

    def _chunk(self, request: Request, budget: int, batch: _Batch) -> int:
        """Tokens of ``request`` in this step: up to the first image that cannot be encoded now."""
        chunk = min(budget, request.target - request.computed)
        if request.encoded >= len(request.images):
            return chunk
        end = request.computed + chunk
        for place in range(request.encoded, len(request.images)):
            start = self._shared + request.encoded_tokens
            if start >= end:
                break
            image, name = request.images[place], request.image_ids[place]
            behind = start + image.prompt_tokens
            if behind > request.computed:
                if not self._encoder.share(name) and not self._encode(image, name, batch):
                    return start - request.computed
                request.held.append((behind, name, image.embeddings))
            request.encoded += 1
            request.encoded_tokens += image.prompt_tokens
        return chunk

    def _encode(self, image: ImageWork, name: int, batch: _Batch) -> bool:
        """Add an image to this step's encoder work if budget and cache have room."""
        if image.embeddings > batch.encoder_left or not self._encoder.has_room(image.embeddings):
            return False
        self._encoder.add(name, image.embeddings)
        batch.patches += image.patches
        batch.pairs += image.patches * image.span
        batch.images += 1
        batch.encoder_left -= image.embeddings
        return True

    def _settle(self, chunks: list[Request]) -> None:
        """After a step: prompts that are complete have a token and go on decoding."""
        for request in chunks:
            if request.held:
                self._release(request, request.computed)
            if request.computed < request.target:
                continue
            self.prefilling.remove(request)
            self._shared_cached = self.limits.prefix_caching
            self._use_prefixes(request)
            if not request.first_token:
                request.first_token = self.now
            request.generated += 1
            left = request.output_tokens - request.generated
            if left <= 0:
                self._finish(request)
                continue
            self._serial += 1
            request.end = self._step + left
            self.decoding[self._serial] = request
            heappush(self._ends, (request.end, self._serial, request))
            self._context += request.target
            self._phases[(request.target - self._step) % len(self._phases)] += 1

    def _release(self, request: Request, reached: int) -> None:
        """Give back the encoder outputs that lie before ``reached`` tokens of the prompt."""
        for _, name, tokens in [held for held in request.held if held[0] <= reached]:
            self._encoder.release(name, tokens)
        request.held = [held for held in request.held if held[0] > reached]

    def _use_prefixes(self, request: Request) -> None:
        if self.limits.prefix_caching:
            for chain in request.chains:
                self._prefix.use(chain)

    def _free_prefixes(self, request: Request) -> None:
        if self.limits.prefix_caching:
            for chain in request.chains:
                self._prefix.free(chain, self.allocated, self.free)

    def _decode(self, until: float) -> None:
        """Decode until ``until``, until a request ends or until the blocks run out."""
        self._blocks_for_decode()
        count = len(self.decoding)
        if not count:
            return
        attention = self.costs.decode_attention(count, self._context)
        growth = self.costs.decode_attention(count, self._context + count) - attention
        first = self.costs.batch(count, count) + attention
        steps = self._ends[0][0] - self._step
        if until < inf:
            steps = min(steps, _steps_within(max(until - self.now, 0.0), first, growth))
        steps = self._steps_with_blocks(max(steps, 1))
        self._pass(steps * first + growth * steps * (steps - 1) / 2, steps)

    def _pass(self, seconds: float, steps: int) -> None:
        """Let ``steps`` steps of all decoding requests pass and end those that are complete."""
        kv = self.limits.kv
        if self.waiting:
            self.waited[self.blocked] = self.waited.get(self.blocked, 0.0) + seconds * len(self.waiting)
        self.now += seconds
        self.busy += seconds
        count = len(self.decoding)
        if count:
            taken = self._blocks_in(steps)
            self.free -= taken
            self.allocated += taken
            self._context += steps * count
        self.kv_seconds[KV_LEVELS - KV_LEVELS * self.free // kv.total] += seconds
        self._step += steps
        ends = self._ends
        while ends and ends[0][0] <= self._step:
            _, serial, request = heappop(ends)
            if self.decoding.get(serial) is request:
                del self.decoding[serial]
                self._leave(request)
                request.generated = request.output_tokens
                self._finish(request)

    def _leave(self, request: Request) -> None:
        """Take a decoding request out of the sums; ``blocks`` becomes what it holds."""
        length = request.target + self._step - (request.end - request.output_tokens + request.generated)
        self._context -= length
        phases = self._phases
        phases[(length - self._step) % len(phases)] -= 1
        kv = self.limits.kv
        grown = -(-length // kv.block_tokens) - -(-request.target // kv.block_tokens)
        request.blocks += kv.growing_groups * grown

    def _finish(self, request: Request) -> None:
        request.finished = self.now
        self.free += request.blocks
        self._free_prefixes(request)
        self.finished.append(request)

    def _blocks_in(self, steps: int) -> int:
        """Blocks that the decoding requests take in the next ``steps`` steps.

        A request takes one when its length is a whole number of blocks, so in step ``s`` those of phase ``-s`` do.
        """
        phases = self._phases
        size = len(phases)
        if steps == 1:
            return phases[-self._step % size] * self.limits.kv.growing_groups
        whole, rest = divmod(steps, size)
        found = whole * len(self.decoding)
        last = -self._step % size + 1
        first = last - rest
        if first < 0:
            found += sum(phases[first:])
        found += sum(phases[max(first, 0) : last])
        return found * self.limits.kv.growing_groups

    def _steps_with_blocks(self, steps: int) -> int:
        """The most steps up to ``steps`` for which the free blocks last; at least one."""
        size = len(self._phases)
        most = self.limits.kv.growing_groups * len(self.decoding)
        if most * (steps // size + 1) <= self.free:
            return steps
        low, high = 1, steps
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._blocks_in(middle) <= self.free else (low, middle - 1)
        return low

    def _blocks_for_decode(self) -> bool:
        """Preempt requests until the next decode step has its blocks; False if any had to go."""
        kept = True
        if self.free >= self.limits.kv.growing_groups * len(self.decoding):
            return kept
        while self.decoding and self._blocks_in(1) > self.free:
            kept = False
            self.blocked = "KV cache"
            if self.prefilling:
                self._requeue(self.prefilling[-1])
                continue
            _, request = self.decoding.popitem()
            done = request.output_tokens - (request.end - self._step)
            self._leave(request)
            request.generated = done
            self.preemptions += 1
            request.preemptions += 1
            self._to_queue(request)
            self._free_prefixes(request)
        return kept

    def _requeue(self, request: Request) -> None:
        """Send back a request whose prompt is not complete."""
        self.prefilling.remove(request)
        self._release(request, request.target)
        self._to_queue(request)

    def _to_queue(self, request: Request) -> None:
        """Put a request first in the queue, to be computed anew with what it has generated."""
        self.free += request.blocks
        request.blocks = request.encoded = 0
        request.target = request.prompt_tokens + request.generated
        self.waiting.appendleft(request)


def _steps_within(seconds: float, first: float, growth: float) -> int:
    """Steps that begin before ``seconds`` have passed: the first takes ``first``, each later one ``growth`` more."""
    if growth <= 0:
        return max(1, ceil(seconds / first))
    half = first - growth / 2
    return max(1, ceil((sqrt(half * half + 2 * growth * seconds) - half) / growth))
