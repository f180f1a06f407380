"""A model of a hub is described without its weights; whatever goes wrong is a value with a reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hub import (
    LocalHub,
    local_hub,
    qwen2_vl_tensors,
    real_files,
    real_models,
    safetensors_header,
    tensor,
)
from vlm_operator.api import names
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.hub.client import MOST_CONFIG_BYTES, fetch_files
from vlm_operator.hub.settings import HubSettings, settings_from
from vlm_operator.hub.source import describe_from_hub
from vlm_operator.hub.types import ModelFiles, SourceRefusal

AIN = "MBZUAI/AIN"
MEDGEMMA = "google/medgemma-27b-it"
RIGHT, OTHER = "hf_right", "hf_other"
TINY = [tensor("model.norm.weight", 8)]


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as running:
        yield running


def refused(answer: ModelFiles | ModelCard | SourceRefusal) -> SourceRefusal:
    assert isinstance(answer, SourceRefusal), answer
    return answer


def test_every_tensor_is_known_from_headers_alone(hub: LocalHub) -> None:
    tensors = qwen2_vl_tensors(real_files(AIN)["config.json"], "F32")
    # The published size of these weights is that of the headers made here.
    assert sum(one.size_bytes for one in tensors) == real_models()[AIN]["total_size"]
    hub.add(AIN, real_files(AIN), tensors, shards=7)
    card = describe_from_hub(AIN, "", hub.settings())
    assert isinstance(card, ModelCard)
    assert sorted(card.tensors) == sorted(tensors)
    assert card.parameters == 8_291_375_616
    assert card.architecture == "Qwen2VLForConditionalGeneration"
    assert hub.sent_bytes < 10**6


def test_files_are_read_at_the_commit_that_the_branch_had(hub: LocalHub) -> None:
    sha = hub.add(AIN, real_files(AIN), TINY).sha
    card = describe_from_hub(AIN, "", hub.settings())
    assert isinstance(card, ModelCard)
    assert card.revision == sha
    assert card.config_provenance.source[0] == f"{hub.endpoint}/{AIN}@{sha}: config.json"
    resolved = [request for request in hub.requests if "/resolve/" in request]
    assert resolved
    assert all(f"/resolve/{sha}/" in request for request in resolved)


def test_a_header_longer_than_the_first_part_takes_a_second_request(hub: LocalHub) -> None:
    many = [tensor(f"model.layers.{n}.mlp.gate_proj.weight", 2, 2) for n in range(3000)]
    assert len(safetensors_header(many)) > 200_000
    hub.add(AIN, real_files(AIN), many)
    card = describe_from_hub(AIN, "", hub.settings())
    assert isinstance(card, ModelCard)
    assert len(card.tensors) == 3000
    assert len([request for request in hub.requests if "bytes=" in request]) == 2


def test_code_in_the_repository_is_neither_read_nor_run(hub: LocalHub) -> None:
    config = {**real_files(AIN)["config.json"], "auto_map": {"AutoConfig": "evil.Config"}}
    hub.add(AIN, {**real_files(AIN), "config.json": config, "evil.py": b"raise SystemExit"}, TINY)
    assert isinstance(describe_from_hub(AIN, "", hub.settings()), ModelCard)
    assert not [request for request in hub.requests if "evil" in request]


def test_the_token_is_sent_and_never_shown(hub: LocalHub) -> None:
    hub.add(AIN, real_files(AIN), TINY, token=RIGHT)
    settings = hub.settings(token=RIGHT)
    assert isinstance(describe_from_hub(AIN, "", settings), ModelCard)
    assert set(hub.tokens) == {f"Bearer {RIGHT}"}
    assert RIGHT not in repr(settings)


@pytest.mark.parametrize(
    ("gated", "token", "reason", "words"),
    [
        (True, "", names.REASON_HUB_UNAUTHORIZED, "is gated (401, no token was sent)"),
        (True, OTHER, names.REASON_MODEL_GATED, "accept its terms"),
        (False, "", names.REASON_HUB_UNAUTHORIZED, "no token was sent"),
        (False, OTHER, names.REASON_HUB_UNAUTHORIZED, "does not know the token"),
    ],
)
def test_who_may_not_read_is_told_why(hub: LocalHub, *, gated: bool, token: str, reason: str, words: str) -> None:
    hub.add(AIN, real_files(AIN), TINY, token=RIGHT, gated=gated)
    answer = refused(describe_from_hub(AIN, "", hub.settings(token=token)))
    assert (answer.reason, answer.transient) == (reason, False)
    assert words in answer.message
    assert OTHER not in answer.message
    assert len(hub.requests) == 1


def test_a_token_without_the_right_to_a_file_is_told_apart(hub: LocalHub) -> None:
    hub.add(AIN, real_files(AIN), TINY)
    hub.faults = {"config.json": [403]}
    answer = refused(describe_from_hub(AIN, "", hub.settings(token=RIGHT)))
    assert (answer.reason, answer.transient) == (names.REASON_HUB_FORBIDDEN, False)


def test_the_token_does_not_follow_a_redirect_to_another_host(hub: LocalHub) -> None:
    with local_hub() as elsewhere:
        sha = hub.add(AIN, real_files(AIN), TINY).sha
        elsewhere.add(AIN, real_files(AIN), TINY)
        hub.faults = {"model.safetensors": [f"{elsewhere.endpoint}/{AIN}/resolve/{sha}/model.safetensors"]}
        card = describe_from_hub(AIN, "", hub.settings(token=RIGHT))
        assert isinstance(card, ModelCard)
        assert list(card.tensors) == TINY
        assert elsewhere.tokens == [""]
        assert "bytes=" in elsewhere.requests[0]


def test_a_revision_that_is_not_there_is_named(hub: LocalHub) -> None:
    hub.add(AIN, real_files(AIN), TINY)
    answer = refused(describe_from_hub(AIN, "v2", hub.settings()))
    assert answer.reason == names.REASON_MODEL_NOT_FOUND
    assert "revision 'v2'" in answer.message


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_a_server_error_is_tried_again(hub: LocalHub, status: int) -> None:
    hub.add(AIN, real_files(AIN), TINY)
    hub.faults = {"/api/models/": [status], "config.json": [status], "model.safetensors": [status, status]}
    assert isinstance(describe_from_hub(AIN, "", hub.settings()), ModelCard)


def test_a_server_error_that_stays_is_told_as_one_that_may_pass(hub: LocalHub) -> None:
    hub.add(AIN, real_files(AIN), TINY)
    hub.faults = {"/api/models/": [503] * 9}
    answer = refused(describe_from_hub(AIN, "", hub.settings(attempts=4)))
    assert (answer.reason, answer.transient) == (names.REASON_HUB_FAILED, True)
    assert "503" in answer.message
    assert len(hub.requests) == 4


def test_too_many_requests_is_told_at_once(hub: LocalHub) -> None:
    hub.add(AIN, real_files(AIN), TINY)
    hub.faults = {"/api/models/": [429] * 9}
    answer = refused(describe_from_hub(AIN, "", hub.settings()))
    assert (answer.reason, answer.transient) == (names.REASON_HUB_FAILED, True)
    assert len(hub.requests) == 1


def test_silence_is_waited_for_only_so_long(hub: LocalHub) -> None:
    hub.add(AIN, real_files(AIN), TINY)
    hub.faults = {"config.json": [1.0] * 9}
    answer = refused(describe_from_hub(AIN, "", hub.settings(request_seconds=0.1, attempts=2)))
    assert (answer.reason, answer.transient) == (names.REASON_HUB_TIMEOUT, True)
    assert "0.1 s" in answer.message


def test_all_requests_together_have_a_deadline(hub: LocalHub) -> None:
    hub.add(AIN, real_files(AIN), TINY)
    hub.faults = {"/": [500] * 99}
    answer = refused(describe_from_hub(AIN, "", hub.settings(attempts=99, first_wait_seconds=0.2, model_seconds=0.3)))
    assert answer.reason == names.REASON_HUB_TIMEOUT
    assert len(hub.requests) < 5


def test_nobody_at_the_address_is_unreachable() -> None:
    answer = refused(describe_from_hub(AIN, "", HubSettings(endpoint="http://127.0.0.1:9")))
    assert (answer.reason, answer.transient) == (names.REASON_HUB_UNREACHABLE, True)
    assert "http://127.0.0.1:9" in answer.message
    assert "HF_ENDPOINT" in answer.message


@pytest.mark.parametrize("endpoint", ["ftp://hub", "not an address", "http://[::"])
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    assert refused(describe_from_hub(AIN, "", HubSettings(endpoint=endpoint, attempts=1))).message


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/models/", b"<html>"),
        ("/api/models/", b"[]"),
        ("/api/models/", b'{"id": "a/b", "sha": "../../etc", "siblings": []}'),
        ("config.json", b"<html>"),
        ("config.json", b"[1]"),
        ("preprocessor_config.json", b"{"),
        ("model.safetensors.index.json", b'{"weight_map": [1]}'),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "elsewhere.safetensors"}}'),
        ("00001-of-00002", b"short"),
        ("00001-of-00002", b"\xff" * 64),
        ("00001-of-00002", (2).to_bytes(8, "little") + b"[]"),
        ("00001-of-00002", (9).to_bytes(8, "little") + b'{"a": {}}'),
        ("00001-of-00002", (15).to_bytes(8, "little") + b'{"a": {"dtyp'),
        ("00001-of-00002", (57).to_bytes(8, "little") + b'{"a":{"dtype":"U8","shape":[1e999],"data_offsets":[0,4]}}'),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_refused(hub: LocalHub, path: str, body: bytes) -> None:
    hub.add(AIN, real_files(AIN), [*TINY, tensor("lm_head.weight", 4)], shards=2)
    hub.faults = {path: [body] * 9}
    answer = refused(describe_from_hub(AIN, "", hub.settings()))
    assert (answer.reason, answer.transient) == (names.REASON_MODEL_FILES_INVALID, False)
    assert AIN in answer.message


def test_a_configuration_that_never_ends_is_not_read_to_its_end(hub: LocalHub) -> None:
    hub.add(AIN, {**real_files(AIN), "config.json": b"[" * (MOST_CONFIG_BYTES + 2**22)}, TINY)
    answer = refused(describe_from_hub(AIN, "", hub.settings()))
    assert answer.reason == names.REASON_FILE_TOO_LARGE
    assert "config.json" in answer.message


def test_a_model_without_safetensors_is_refused(hub: LocalHub) -> None:
    hub.add(AIN, {**real_files(AIN), "pytorch_model.bin": b"PK"})
    assert refused(describe_from_hub(AIN, "", hub.settings())).reason == names.REASON_NO_SAFETENSORS


def test_a_repository_without_configuration_is_refused(hub: LocalHub) -> None:
    hub.add(AIN, {"README.md": b"#"}, TINY)
    answer = refused(describe_from_hub(AIN, "", hub.settings()))
    assert answer.reason == names.REASON_MODEL_FILES_INVALID
    assert "config.json" in answer.message


def test_a_hub_without_ranges_never_sends_the_weights(hub: LocalHub) -> None:
    tensors = [tensor(f"model.layers.{n}.mlp.gate_proj.weight", 2, 2) for n in range(3000)]
    hub.add(AIN, real_files(AIN), tensors)
    hub.ranges = False
    answer = refused(describe_from_hub(AIN, "", hub.settings()))
    assert answer.reason == names.REASON_HUB_FAILED
    assert "range" in answer.message


def test_files_in_mistrals_format_beside_the_others_are_not_counted_twice(hub: LocalHub) -> None:
    files = {**real_files(AIN), "consolidated.safetensors": safetensors_header([tensor("output.weight", 4)])}
    hub.add(AIN, files, TINY)
    card = describe_from_hub(AIN, "", hub.settings())
    assert isinstance(card, ModelCard)
    assert list(card.tensors) == TINY


def test_a_commit_is_asked_for_once(hub: LocalHub, tmp_path: Path) -> None:
    sha = hub.add(AIN, real_files(AIN), qwen2_vl_tensors(real_files(AIN)["config.json"])).sha
    settings = hub.settings(cache_folder=tmp_path)
    first = fetch_files(AIN, "", settings)
    asked = len(hub.requests)
    assert fetch_files(AIN, "", settings) == first
    assert len(hub.requests) == asked + 1  # where the branch stands
    hub.faults = {"/": [500] * 99}
    assert fetch_files(AIN, sha, settings) == first
    assert len(hub.requests) == asked + 1


def test_a_moved_branch_is_read_anew(hub: LocalHub, tmp_path: Path) -> None:
    settings = hub.settings(cache_folder=tmp_path)
    hub.add(AIN, real_files(AIN), TINY)
    before = fetch_files(AIN, "", settings)
    hub.add(AIN, real_files(AIN), [tensor("model.norm.weight", 16)])
    after = fetch_files(AIN, "", settings)
    assert isinstance(before, ModelFiles)
    assert isinstance(after, ModelFiles)
    assert after.tensors != before.tensors


def test_what_one_token_read_is_not_shown_to_another(hub: LocalHub, tmp_path: Path) -> None:
    sha = hub.add(AIN, real_files(AIN), TINY, token=RIGHT, gated=True).sha
    assert isinstance(fetch_files(AIN, sha, hub.settings(cache_folder=tmp_path, token=RIGHT)), ModelFiles)
    answer = refused(fetch_files(AIN, sha, hub.settings(cache_folder=tmp_path)))
    assert answer.reason == names.REASON_HUB_UNAUTHORIZED


def test_a_spoilt_cache_is_as_good_as_none(hub: LocalHub, tmp_path: Path) -> None:
    sha = hub.add(AIN, real_files(AIN), TINY).sha
    settings = hub.settings(cache_folder=tmp_path)
    first = fetch_files(AIN, sha, settings)
    for entry in tmp_path.rglob("*.gz"):
        entry.write_bytes(b"spoilt")
    assert fetch_files(AIN, sha, settings) == first
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert fetch_files(AIN, sha, hub.settings(cache_folder=blocked)) == first


def test_the_environment_names_the_hub_and_who_asks() -> None:
    settings = settings_from({"HF_ENDPOINT": "https://mirror.example/", "HF_TOKEN": RIGHT, "XDG_CACHE_HOME": "/c"})
    assert settings.endpoint == "https://mirror.example"
    assert settings.token == RIGHT
    assert settings.cache_folder == Path("/c/vlm-operator/models")
    assert settings_from({}).endpoint == "https://huggingface.co"
