"""Make the children what the decision wants: create, put back, remove. Writes differences only.

A child that exists but belongs to somebody else is never taken over: that is an error for status. A claim
is created once and then left alone, because its size may only be raised, by the user, and its content is
the user's. Called by ``reconcile``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.cluster import kinds
from vlm_operator.cluster.client import ClusterClient
from vlm_operator.controller.decide import Decision
from vlm_operator.controller.differences import holds
from vlm_operator.errors import ClusterError
from vlm_operator.render.names import PLAN_DIGEST_ANNOTATION, SPEC_DIGEST_ANNOTATION

Document = dict[str, Any]

_REMOVABLE: Final = (kinds.DISRUPTION_BUDGET,)
"""Kinds of which a plan may want none. A claim is not among them: nobody asked us to delete data."""
_SERVER_ERRORS: Final = 500
_RETRIED: Final = frozenset({404, 409, 429})
"""404: the namespace is going away; 409: somebody was quicker; 429: too fast. A later visit will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The children afterwards by kind name, which of them were written, and what the API server refused."""

    children: Mapping[str, Document]
    written: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    error: str = ""


async def apply_children(
    client: ClusterClient, document: Document, decision: Decision, live: Mapping[str, Document]
) -> Applied:
    """Carry out a decision.

    Raises:
        ClusterError: the API server cannot be reached or fails; a refusal is in the answer instead.
    """
    children = dict(live)
    written: list[str] = []
    restored: list[str] = []
    deployment = live.get(kinds.DEPLOYMENT.name)
    errors: list[str] = []
    for wanted in decision.manifests or ():
        kind = wanted["kind"]
        try:
            after = await _apply_child(client, document, decision, wanted, live.get(kind))
        except ClusterError as error:
            _raise_if_transient(error)
            errors.append(str(error))
            continue
        if after is not None:
            children[kind] = after
            written.append(kind)
            if kind in live and _is_drift(wanted, live[kind], deployment):
                restored.append(kind)
    if decision.manifests is not None:
        try:
            await _remove_unwanted(client, document, decision.manifests, children)
        except ClusterError as error:
            _raise_if_transient(error)
            errors.append(str(error))
    return Applied(children=children, written=tuple(written), restored=tuple(restored), error="; ".join(errors))


async def _apply_child(
    client: ClusterClient, document: Document, decision: Decision, wanted: Document, live: Document | None
) -> Document | None:
    """Return what the child became, or None where nothing had to be written."""
    kind = wanted["kind"]
    if live is None:
        return await client.apply(wanted)
    if not kinds.is_owned_by(live, document["metadata"]["uid"]):
        if "deletionTimestamp" in live["metadata"] or kinds.is_orphan_of(live, document):
            raise ClusterError(f"the former {kind} is still going away", status=409)
        raise ClusterError(
            f"the {kind} {live['metadata']['name']!r} exists and belongs to somebody else; "
            "delete it, or give this resource another name"
        )
    if kind == kinds.CLAIM.name:
        _refuse_changed_claim(wanted, live)
    leave_alone = kind == kinds.CLAIM.name or (decision.keep_deployment and kind == kinds.DEPLOYMENT.name)
    if "deletionTimestamp" in live["metadata"] or leave_alone or holds(wanted, live):
        return None
    return await client.apply(wanted)


def _refuse_changed_claim(wanted: Document, live: Document) -> None:
    """Raise where the spec asks for a claim of another kind: what the cluster cannot change is never ignored."""
    changed = [
        name
        for name in ("accessModes", "storageClassName")
        if name in wanted["spec"] and wanted["spec"][name] != live["spec"].get(name)
    ]
    if changed:
        raise ClusterError(
            f"the claim {live['metadata']['name']!r} exists with another {' and '.join(changed)}, which cannot be "
            "changed; put spec.model.storage.cache back, or delete the claim to have it created anew"
        )


async def _remove_unwanted(
    client: ClusterClient, document: Document, manifests: Sequence[Document], children: dict[str, Document]
) -> None:
    wanted = {manifest["kind"] for manifest in manifests}
    for kind in _REMOVABLE:
        child = children.get(kind.name)
        if child is None or kind.name in wanted or not kinds.is_owned_by(child, document["metadata"]["uid"]):
            continue
        metadata = child["metadata"]
        await client.delete(kind, metadata["namespace"], metadata["name"], metadata["uid"])
        del children[kind.name]


def _is_drift(wanted: Document, live: Document, deployment: Document | None) -> bool:
    """Tell whether a write put something back, rather than carrying out a new spec or plan."""
    reference = deployment if wanted["kind"] != kinds.DEPLOYMENT.name else live
    if reference is None:
        return False
    now = wanted["metadata"].get("annotations") or {}
    then = reference["metadata"].get("annotations") or {}
    digests = (SPEC_DIGEST_ANNOTATION, PLAN_DIGEST_ANNOTATION)
    known = [name for name in digests if name in now]
    return all(now[name] == then.get(name) for name in known)


def _raise_if_transient(error: ClusterError) -> None:
    """Raise what a later visit can expect to be over; what is left is a refusal that the user should read."""
    if error.status is not None and (error.status >= _SERVER_ERRORS or error.status in _RETRIED):
        raise error
