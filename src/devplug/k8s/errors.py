"""The errors of calls to an API server, each with the sentence for the person who must act. Pure."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from devplug.errors import DevplugError, one_line
from devplug.web.messages import WebClientError

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClusterError(DevplugError):
    """The API server cannot be reached, or its answer cannot be used; it may pass. Check rights and cluster.

    The text says what to change.
    """

    retry_after_seconds: float = 0.0
    """How long the API server asks to be left alone (Retry-After)."""


class UnreachableError(ClusterError):
    """The API server gives no answer."""


class ExistsError(ClusterError):
    """The API server has an object of that name already, or another version of it (409)."""


class ExpiredError(ClusterError):
    """The API server no longer knows what has changed since the version that a watch goes on from (410)."""


class InvalidError(ClusterError):
    """The API server says that an object is wrong (422)."""


class NotThereError(ClusterError):
    """The API server answers that it has no such thing."""


class RefusedError(ClusterError):
    """The API server refuses the account or the call (401, 403); the text names the right."""


class AnswerError(Exception):
    """An answer of the API server that is no success, before `explained` makes a sentence of it."""

    def __init__(self, code: int, said: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(said)
        self.code = code
        """The status of HTTP, or of the Status that ends a watch."""
        self.retry_after_seconds = retry_after_seconds


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
    except WebClientError as error:  # it names the server, and says what to do
        raise UnreachableError(one_line(str(error))) from error
    except AnswerError as error:
        failure = _refused(error, advice, when_absent)
        failure.retry_after_seconds = error.retry_after_seconds
        raise failure from error
    except Exception as error:
        said = one_line(str(error), 120) or type(error).__name__
        raise ClusterError(f"the API server gave no usable answer ({said})") from error


def _refused(error: AnswerError, advice: str, when_absent: str) -> ClusterError:
    said = one_line(str(error), 120) or type(error).__name__
    if error.code == 404 and when_absent:
        return NotThereError(when_absent)
    if error.code in {401, 403}:
        return RefusedError(f"the API server refuses ({error.code} {said}); {advice}")
    if error.code == 429:
        return ClusterError(f"the API server has too much to do, and asks to come back later ({said})")
    kind, why = _WHYS.get(error.code, (ClusterError, "gave no usable answer"))
    return kind(f"the API server {why} ({said})")


_WHYS: Final[dict[int, tuple[type[ClusterError], str]]] = {
    409: (ExistsError, "has another object of that name"),
    410: (ExpiredError, "has forgotten that version"),
    422: (InvalidError, "takes no such object"),
}
