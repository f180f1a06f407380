"""Every way in which a hub can fail, in words. Made inside this package, returned from it as values."""

from vlm_operator.api import names
from vlm_operator.hub.types import SourceRefusal

_TOKEN_HINT = "name a token that may read it (spec.model.tokenSecretRef, or HF_TOKEN for vlmctl)"  # noqa: S105 - words
_UNAUTHORISED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY, _SERVER_ERRORS = 401, 403, 404, 429, 500


class RefusedError(Exception):
    """Carries a refusal from the place that finds it to the function that returns it."""

    def __init__(self, refusal: SourceRefusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.message)

    @classmethod
    def no_safetensors(cls, model_id: str) -> "RefusedError":
        """Return the refusal of a model without safetensors files."""
        message = (
            f"{model_id}: the hub has no safetensors files of it, and other formats do not say how large their tensors "
            "are before they are loaded; convert the weights, or choose another revision"
        )
        return cls(SourceRefusal(reason=names.REASON_NO_SAFETENSORS, message=message))


def refuse_file(model_id: str, name: str, why: str) -> RefusedError:
    """Return the refusal of a file that cannot be used."""
    message = f"{model_id}: {name} {why}; correct it, or choose another revision or source (spec.model.source)"
    return RefusedError(SourceRefusal(reason=names.REASON_MODEL_FILES_INVALID, message=message))


def refuse_large(model_id: str, name: str, most_bytes: int) -> RefusedError:
    """Return the refusal of a file that is longer than anything of its kind."""
    message = f"{model_id}: {name} has more than {most_bytes:,} bytes, which no such file needs; it was not read"
    return RefusedError(SourceRefusal(reason=names.REASON_FILE_TOO_LARGE, message=message))


def refuse_range(model_id: str, name: str) -> RefusedError:
    """Return the refusal of a hub that would send whole weights where a part was asked for."""
    message = (
        f"{model_id}: the hub sends all of {name} where a part was asked for, so tensor sizes cannot be read without "
        "downloading the weights; use a hub that answers range requests (HF_ENDPOINT), or source ConfigMap"
    )
    return RefusedError(SourceRefusal(reason=names.REASON_HUB_FAILED, message=message))


def refuse_unreachable(model_id: str, endpoint: str, why: str) -> RefusedError:
    """Return the refusal of a hub that nothing came back from."""
    message = (
        f"{model_id}: the model hub {endpoint} cannot be reached ({why}); check the network or HF_ENDPOINT, or give "
        "the model's files in a ConfigMap (spec.model.source: ConfigMap)"
    )
    return RefusedError(SourceRefusal(reason=names.REASON_HUB_UNREACHABLE, message=message, transient=True))


def refuse_late(model_id: str, endpoint: str, seconds: float) -> RefusedError:
    """Return the refusal of a hub that answers too slowly."""
    message = f"{model_id}: the model hub {endpoint} did not answer within {seconds:g} s; it will be asked again"
    return RefusedError(SourceRefusal(reason=names.REASON_HUB_TIMEOUT, message=message, transient=True))


def refuse_status(model_id: str, what: str, status: int, code: str, *, with_token: bool) -> RefusedError:
    """Return the refusal that an HTTP status means.

    Args:
        model_id: The model.
        what: The revision or file that was asked for.
        status: HTTP status, 400 or above.
        code: The hub's header ``X-Error-Code``, empty where it sent none.
        with_token: Whether a token was sent.
    """
    gated = code == "GatedRepo"
    if status == _UNAUTHORISED:
        kind = "is gated" if gated else "is private or does not exist"
        token = "the hub does not know the token" if with_token else "no token was sent"
        message = f"{model_id} {kind} (401, {token}); check the id, or {_TOKEN_HINT}"
        return RefusedError(SourceRefusal(reason=names.REASON_HUB_UNAUTHORIZED, message=message))
    if status == _FORBIDDEN and gated:
        message = f"{model_id} is gated: accept its terms on the hub with the token's account, or {_TOKEN_HINT}"
        return RefusedError(SourceRefusal(reason=names.REASON_MODEL_GATED, message=message))
    if status == _FORBIDDEN:
        message = f"{model_id}: the token may not read it (403); {_TOKEN_HINT}"
        return RefusedError(SourceRefusal(reason=names.REASON_HUB_FORBIDDEN, message=message))
    if status == _NOT_FOUND:
        message = f"{model_id}: the hub has no {what}; check spec.model.id and spec.model.revision"
        return RefusedError(SourceRefusal(reason=names.REASON_MODEL_NOT_FOUND, message=message))
    later = status >= _SERVER_ERRORS or status == _TOO_MANY
    then = "it will be asked again" if later else "check HF_ENDPOINT"
    message = f"{model_id}: the hub answered {status} for {what}; {then}"
    return RefusedError(SourceRefusal(reason=names.REASON_HUB_FAILED, message=message, transient=later))
