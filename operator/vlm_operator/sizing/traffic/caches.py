"""What the engine remembers between requests: encoded images, KV of finished prompts, prepared images."""

from collections import OrderedDict


class EncoderCache:
    """Encoder outputs by image (fact sheet 4.5): used ones stay, unused ones go oldest first when room is needed."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held = 0
        self._unused = 0
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, int] = OrderedDict()

    def share(self, image: int) -> bool:
        """Take an image that is there already; False where it is not."""
        if image not in self._users:
            return False
        self._users[image] += 1
        self._unused -= self._idle.pop(image, 0)
        return True

    def has_room(self, tokens: int) -> bool:
        """Whether ``tokens`` fit once every unused output is gone."""
        return self._held - self._unused + tokens <= self.capacity

    def add(self, image: int, tokens: int) -> None:
        """Keep a new output, dropping the oldest unused ones for it."""
        while self._idle and self._held + tokens > self.capacity:
            gone, size = self._idle.popitem(last=False)
            del self._users[gone]
            self._held -= size
            self._unused -= size
        self._users[image] = 1
        self._held += tokens

    def release(self, image: int, tokens: int) -> None:
        """One user of an image is past it."""
        self._users[image] -= 1
        if not self._users[image]:
            self._idle[image] = tokens
            self._unused += tokens


class PrefixCache:
    """KV blocks of prompts by the chain of images that they begin with.

    Freed blocks keep their contents until they are handed out again, least recently freed first. So what is freed now
    is gone once as many blocks have been allocated as are free now.
    """

    def __init__(self) -> None:
        self._users: dict[int, int] = {}
        self._gone_at: dict[int, int] = {}

    def holds(self, chain: int, allocated: int) -> bool:
        """Whether a prompt that began with these images is still there after ``allocated`` blocks in all."""
        return self._users.get(chain, 0) > 0 or allocated < self._gone_at.get(chain, -1)

    def use(self, chain: int) -> None:
        """A running request has this beginning computed."""
        self._users[chain] = self._users.get(chain, 0) + 1

    def free(self, chain: int, allocated: int, free_blocks: int) -> None:
        """A request with this beginning has ended, ``free_blocks`` are free with its own."""
        self._users[chain] -= 1
        if not self._users[chain]:
            del self._users[chain]
            self._gone_at[chain] = allocated + free_blocks


class ProcessorCache:
    """Prepared images, least recently used dropped first (fact sheet 4.6)."""

    def __init__(self, patches: int) -> None:
        self._room = patches
        self._kept: OrderedDict[int, int] = OrderedDict()

    def take(self, image: int, patches: int) -> bool:
        """Return whether the image was kept, and keep it now."""
        if image in self._kept:
            self._kept.move_to_end(image)
            return True
        while self._kept and self._room < patches:
            self._room += self._kept.popitem(last=False)[1]
        if patches <= self._room:
            self._kept[image] = patches
            self._room -= patches
        return False
