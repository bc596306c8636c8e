"""What the API server is given in by other parts of the sandbox: documents, checks of fields, logs, control.

Only the shapes stand here; whoever puts a sandbox together gives the parts in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from devplug.sandbox.openapi.fieldvalidation import FieldReport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.requests.fieldreports import FieldCheck
    from devplug.sandbox.requests.podlogs import LogOptions

__all__ = [
    "Control",
    "Documents",
    "Hooks",
    "Logs",
    "Metrics",
    "no_control",
    "no_documents",
    "no_field_faults",
    "no_logs",
    "no_metrics",
]


class Documents(Protocol):
    """Has the OpenAPI documents."""

    def __call__(self, path: str, accept: str, /) -> tuple[bytes, str] | None:
        """Return the document under a path below `/openapi/` and its media type; None if there is none."""


class Logs(Protocol):
    """Has what containers have written."""

    def __call__(self, pod: Object, options: LogOptions, /) -> AsyncGenerator[bytes, None]:
        """Yield the text of `options.container`, all options heeded; to follow, until the container ends."""


class Metrics(Protocol):
    """Has what kubelets count."""

    def __call__(self, node: str, /) -> str | None:
        """Return the metrics of a node's kubelet in Prometheus' text format; None for no such node."""


class Control(Protocol):
    """Does what is asked of the sandbox itself, under paths below `/sandbox/`."""

    async def __call__(self, method: str, path: str, body: object, /) -> tuple[int, Object] | None:
        """Return the HTTP status and the answer, None if nothing is there; without a body `body` is None."""


def no_field_faults(_resource: Resource, _body: object, /) -> FieldReport:
    """Find no fault in any object."""
    return FieldReport()


def no_documents(_path: str, _accept: str, /) -> tuple[bytes, str] | None:
    """Have no document."""
    return None


async def no_logs(_pod: Object, _options: LogOptions, /) -> AsyncGenerator[bytes, None]:
    """Have logs without a line."""
    nothing: tuple[bytes, ...] = ()
    for line in nothing:
        yield line


def no_metrics(_node: str, /) -> str | None:
    """Have no metrics."""
    return None


async def no_control(_method: str, _path: str, _body: object, /) -> tuple[int, Object] | None:
    """Do nothing."""
    return None


@dataclass(frozen=True, slots=True)
class Hooks:
    """The parts that are given in; each that is left out has nothing to say."""

    field_report: FieldCheck = no_field_faults
    documents: Documents = no_documents
    logs: Logs = no_logs
    metrics: Metrics = no_metrics
    control: Control = no_control
