"""One model of a Hugging Face compatible hub: its commit, configuration files and tensor headers.

In: a model id, a revision and ``HubSettings``. Out: ``ModelFiles``, or a ``SourceRefusal`` for whatever went wrong.
Weights are not downloaded: of each file the header alone is asked for, by range. Blocking; the controller calls it
on a thread. Called by ``source`` and by ``cli``.
"""

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from vlm_operator.catalogue.types import StoredTensor
from vlm_operator.hub import cache
from vlm_operator.hub.headers import LENGTH_BYTES, HeaderError, header_bytes, parse_header
from vlm_operator.hub.refusals import RefusedError, refuse_file
from vlm_operator.hub.settings import HubSettings
from vlm_operator.hub.transport import Transport
from vlm_operator.hub.types import CONFIG, CONFIG_FILES, MISTRAL_CONFIG, ModelFiles, SourceRefusal

MOST_CONFIG_BYTES: Final = 4 * 2**20
MOST_INDEX_BYTES: Final = 64 * 2**20
MOST_SHARDS: Final = 1024
_FIRST_BYTES: Final = 128 * 2**10
"""Most headers fit into this, so that one request per file does."""
_THREADS: Final = 8
_INDEX: Final = "model.safetensors.index.json"
_SUFFIX: Final = ".safetensors"
_COMMIT_LENGTH: Final = 40


def fetch_files(model_id: str, revision: str, settings: HubSettings) -> ModelFiles | SourceRefusal:
    """Return what the hub holds of a model at a revision (empty: its main branch), or why there is nothing."""
    if _is_commit(revision):
        kept = cache.load_files(settings, model_id, revision)
        if kept is not None:
            return kept
    try:
        return _fetch(model_id, revision, settings)
    except RefusedError as refused:
        return refused.refusal


def _fetch(model_id: str, revision: str, settings: HubSettings) -> ModelFiles:
    transport = Transport(settings, model_id)
    commit, names = transport.resolve(revision)
    kept = cache.load_files(settings, model_id, commit)
    if kept is not None:
        return kept
    wanted = [name for name in CONFIG_FILES if name in names]
    if CONFIG not in names and MISTRAL_CONFIG not in names:
        raise refuse_file(model_id, CONFIG, "is not there, so the hub does not say how the model is built")
    documents: dict[str, Mapping[str, Any]] = {
        name: _document(transport, commit, name, MOST_CONFIG_BYTES) for name in wanted
    }
    files = ModelFiles(
        documents=documents,
        tensors=_read_headers(transport, commit, _weight_files(transport, commit, names)),
        origin=f"{settings.endpoint}/{model_id}",
        revision=commit,
    )
    cache.store_files(settings, model_id, files)
    return files


def _is_commit(revision: str) -> bool:
    return len(revision) == _COMMIT_LENGTH and set(revision) <= set("0123456789abcdef")


def _document(transport: Transport, commit: str, name: str, most_bytes: int) -> Mapping[str, Any]:
    raw = transport.read(commit, name, most_bytes=most_bytes)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise refuse_file(transport.model_id, name, f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise refuse_file(transport.model_id, name, "holds no JSON object")
    return document


def _weight_files(transport: Transport, commit: str, names: Collection[str]) -> list[str]:
    """Return the files that the engine loads: those of the index, else every safetensors file at the top.

    Mistral's own ``consolidated`` files hold the same weights once more where others stand beside them.
    """
    if _INDEX in names:
        index = _document(transport, commit, _INDEX, MOST_INDEX_BYTES).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(shard, str) for shard in index.values()):
            raise refuse_file(transport.model_id, _INDEX, "has no weight_map of tensor names to files")
        found = set(index.values())
    else:
        found = {name for name in names if name.endswith(_SUFFIX) and "/" not in name}
        others = {name for name in found if not name.startswith("consolidated")}
        found = others or found
    if not found:
        raise RefusedError.no_safetensors(transport.model_id)
    if len(found) > MOST_SHARDS:
        raise refuse_file(transport.model_id, _INDEX, f"names {len(found):,} files; at most {MOST_SHARDS:,} are read")
    missing = sorted(found - set(names))
    if missing:
        raise refuse_file(transport.model_id, missing[0], "is named by the index, but is not there")
    return sorted(found)


def _read_headers(transport: Transport, commit: str, shards: list[str]) -> tuple[StoredTensor, ...]:
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="hub") as pool:
        found = list(pool.map(lambda name: _read_header(transport, commit, name), shards))
    return tuple(tensor for tensors in found for tensor in tensors)


def _read_header(transport: Transport, commit: str, name: str) -> tuple[StoredTensor, ...]:
    start = transport.read_range(commit, name, 0, _FIRST_BYTES)
    try:
        end = LENGTH_BYTES + header_bytes(start)
        if len(start) < end and len(start) == _FIRST_BYTES:  # else the file ends here
            start += transport.read_range(commit, name, len(start), end)
        return parse_header(start, end)
    except HeaderError as error:
        raise refuse_file(transport.model_id, name, f"is no safetensors file: {error}") from None
