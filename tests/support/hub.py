"""A model hub on this machine: the addresses, headers and errors of the Hugging Face hub, on real sockets.

Configuration files are those of real checkpoints (``data/hub_models.json.gz`` says whose); weight files have a real
header and no data worth sending: a hub that is asked for all of one would have to make it up.
"""

import gzip
import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from vlm_operator.catalogue.types import StoredTensor
from vlm_operator.hub.settings import HubSettings

INDEX: Final = "model.safetensors.index.json"
_DATA: Final = Path(__file__).parent / "data" / "hub_models.json.gz"
_ADDRESS: Final = re.compile(r"/(?P<api>api/models/)?(?P<id>[^/]+/[^/]+)(?:/(?:resolve|revision)/(?P<rest>.+))?$")
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")


@cache
def real_models() -> dict[str, dict[str, Any]]:
    """Return ``files``, ``origin`` and the published ``total_size`` of real checkpoints by id."""
    found: dict[str, dict[str, Any]] = json.loads(gzip.decompress(_DATA.read_bytes()))
    return found


def real_files(model_id: str) -> dict[str, Any]:
    """Return the configuration files of a real checkpoint."""
    return dict(real_models()[model_id]["files"])


def tensor(name: str, *shape: int, dtype: str = "BF16") -> StoredTensor:
    """Return a tensor of a header."""
    elements = 1
    for side in shape:
        elements *= side
    size = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I32": 4}[dtype] * elements
    return StoredTensor(name=name, dtype=dtype, shape=shape, size_bytes=size)


def qwen2_vl_tensors(config: Mapping[str, Any], dtype: str = "BF16") -> list[StoredTensor]:
    """Return every tensor of a Qwen2-VL checkpoint as the published files name and shape them."""
    hidden, wide, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    width, merged = 1280, 5120
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "lm_head.weight": (vocab, hidden),
    }
    found |= {"model.norm.weight": (hidden,), "visual.patch_embed.proj.weight": (width, 3, 2, 14, 14)}
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        for name, out in (("q", hidden), ("k", keys), ("v", keys)):
            found[f"{block}self_attn.{name}_proj.weight"] = (out, hidden)
            found[f"{block}self_attn.{name}_proj.bias"] = (out,)
        found[f"{block}self_attn.o_proj.weight"] = (hidden, hidden)
        found |= {f"{block}mlp.{name}_proj.weight": (wide, hidden) for name in ("gate", "up")}
        found[f"{block}mlp.down_proj.weight"] = (hidden, wide)
        found |= {f"{block}{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    for layer in range(32):
        block = f"visual.blocks.{layer}."
        linears = {
            "attn.qkv": (3 * width, width),
            "attn.proj": (width, width),
            "mlp.fc1": (4 * width, width),
            "mlp.fc2": (width, 4 * width),
        }
        found |= {f"{block}{name}.weight": sides for name, sides in linears.items()}
        found |= {f"{block}{name}.bias": sides[:1] for name, sides in linears.items()}
        found |= {f"{block}norm{n}.{kind}": (width,) for n in (1, 2) for kind in ("weight", "bias")}
    found |= {"visual.merger.ln_q.weight": (width,), "visual.merger.ln_q.bias": (width,)}
    for name, out in (("0", merged), ("2", hidden)):
        found |= {f"visual.merger.mlp.{name}.weight": (out, merged), f"visual.merger.mlp.{name}.bias": (out,)}
    return [tensor(name, *sides, dtype=dtype) for name, sides in found.items()]


def safetensors_header(tensors: Sequence[StoredTensor]) -> bytes:
    """Return the beginning of a safetensors file, up to its data."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for one in tensors:
        end = offset + one.size_bytes
        entries[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


@dataclass
class HubModel:
    """One repository of the hub; ``token`` is who may read it, ``gated`` how the others are told."""

    files: dict[str, bytes]
    sha: str
    token: str = ""
    gated: bool = False


@dataclass
class LocalHub:
    """A running hub. ``faults`` answer a path that contains their key: a status, seconds of silence,
    another address or some bytes.

    Attributes:
        requests: Every request as ``METHOD path``, with its range where it has one.
        ranges: Whether parts of files are sent where they are asked for.
    """

    endpoint: str
    models: dict[str, HubModel] = field(default_factory=dict)
    faults: dict[str, list[int | float | str | bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ranges: bool = True
    sent_bytes: int = 0

    def settings(self, **changes: Any) -> HubSettings:
        """Return settings that are impatient enough for a test and keep nothing."""
        patient: dict[str, Any] = {"request_seconds": 2.0, "model_seconds": 20.0, "first_wait_seconds": 0.01}
        return HubSettings(endpoint=self.endpoint, **{**patient, **changes})

    def add(
        self,
        model_id: str,
        files: Mapping[str, Any],
        tensors: Sequence[StoredTensor] = (),
        *,
        shards: int = 1,
        token: str = "",
        gated: bool = False,
    ) -> HubModel:
        """Put a model on the hub; several ``shards`` come with an index."""
        held = {
            name: value if isinstance(value, bytes) else json.dumps(value).encode() for name, value in files.items()
        }
        if tensors and shards == 1:
            held["model.safetensors"] = safetensors_header(tensors)
        elif tensors:
            names = [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)]
            parts = {name: tensors[n::shards] for n, name in enumerate(names)}
            held |= {name: safetensors_header(part) for name, part in parts.items()}
            weight_map = {one.name: name for name, part in parts.items() for one in part}
            held[INDEX] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
        digest = hashlib.sha1(repr(sorted(held.items())).encode(), usedforsecurity=False).hexdigest()
        model = self.models[model_id] = HubModel(files=held, sha=digest, token=token, gated=gated)
        return model


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """Run an empty hub for the length of a ``with`` block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.hub = hub = LocalHub(endpoint=f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: LocalHub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hung up; that is what it does when it has read enough, or waited too long."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    server: _Server

    @property
    def _hub(self) -> LocalHub:
        return self.server.hub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer as the hub does."""
        path = unquote(self.path.split("?")[0])
        part = self.headers.get("Range", "")
        self._hub.requests.append(f"GET {path} {part}".strip())
        self._hub.tokens.append(self.headers.get("Authorization", ""))
        if self._fails(path):
            return
        found = _ADDRESS.match(path)
        model = self._hub.models.get(found["id"]) if found else None
        if found is None or model is None:
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif model.token and (given := self.headers.get("Authorization")) != f"Bearer {model.token}":
            status = 403 if model.gated and given else 401
            self._send(status, b"", {"X-Error-Code": "GatedRepo"} if model.gated else {})
        elif found["api"]:
            self._send_info(found["id"], model, found["rest"] or "main")
        else:
            self._send_file(model, found["rest"] or "", part)

    def _fails(self, path: str) -> bool:
        for key, queue in self._hub.faults.items():
            if key in path and queue:
                fault = queue.pop(0)
                if isinstance(fault, float):
                    time.sleep(fault)
                    self.close_connection = True
                elif isinstance(fault, str):
                    self._send(302, b"", {"Location": fault})
                elif isinstance(fault, bytes):
                    self._send(200, fault)
                else:
                    self._send(fault, b"no")
                return True
        return False

    def _send_info(self, model_id: str, model: HubModel, revision: str) -> None:
        if revision not in {"main", model.sha}:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [{"rfilename": name} for name in model.files]
        info = {"_id": "0", "id": model_id, "sha": model.sha, "siblings": siblings, "tags": [], "downloads": 0}
        self._send(200, json.dumps(info).encode())

    def _send_file(self, model: HubModel, rest: str, part: str) -> None:
        revision, _, name = rest.partition("/")
        content = model.files.get(name)
        if revision not in {"main", model.sha} or content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        asked = _RANGE.fullmatch(part)
        if asked is None or not self._hub.ranges:
            self._send(200, content)
            return
        first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
        self._send(206, content[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(content)}"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
            self._hub.sent_bytes += len(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
