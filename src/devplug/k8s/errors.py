"""The errors of calls to an API server, as sentences that say who must act."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from devplug.errors import DevplugError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ClusterError",
    "ExistsError",
    "ExpiredError",
    "InvalidError",
    "MissingExtraError",
    "NotThereError",
    "RefusedError",
    "explained",
]


class ClusterError(DevplugError):
    """The API server cannot be reached, or its answer cannot be used; it may pass. Check rights and cluster.

    The text says what to change.
    """

    retry_after_seconds: float = 0.0
    """How long the API server asks to be left alone (Retry-After)."""


class ExistsError(ClusterError):
    """The API server has an object of that name already, or another version of it (409)."""


class ExpiredError(ClusterError):
    """The API server no longer knows what has changed since the version that a watch goes on from (410)."""


class InvalidError(ClusterError):
    """The API server says that an object is wrong (422)."""


class MissingExtraError(ClusterError):
    """lightkube is not installed, so the API server cannot be asked."""


class NotThereError(ClusterError):
    """The API server answers that it has no such thing."""


class RefusedError(ClusterError):
    """The API server refuses the account or the call (401, 403); the text names the right."""


@contextmanager
def explained(advice: str, when_absent: str = "") -> Iterator[None]:
    """Turn whatever goes wrong within one question to the API server into a `ClusterError`.

    Whatever: between us and it are proxies and load balancers, which answer as they like. `advice` says how
    to get the right that is missing; `when_absent` is the text for what is not there, if that may be.
    """
    try:
        yield
    except ClusterError:
        raise
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        if code is None:
            code = getattr(getattr(error, "status", None), "code", None)
        # A URL may have a secret in it, as that of the sandbox has.
        said = one_line(str(error).partition(" for url ")[0], 120) or type(error).__name__
        failure: ClusterError
        if code == 404 and when_absent:
            failure = NotThereError(when_absent)
        elif code == 409:
            failure = ExistsError(f"the API server has another object of that name ({said})")
        elif code == 410:
            failure = ExpiredError(f"the API server has forgotten that version ({said})")
        elif code == 422:
            failure = InvalidError(f"the API server takes no such object ({said})")
        elif code in {401, 403}:
            failure = RefusedError(f"the API server refuses ({code} {said}); {advice}")
        elif code == 429:
            failure = ClusterError(f"the API server has too much to do, and asks to come back later ({said})")
        else:
            failure = ClusterError(f"the API server gave no usable answer ({said})")
        failure.retry_after_seconds = _retry_after_seconds(error)
        raise failure from error


def _retry_after_seconds(error: Exception) -> float:
    """Return the seconds of an answer's Retry-After; an API server gives no dates."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = str(headers.get("Retry-After", ""))
    return float(value) if value.isdecimal() else 0.0
