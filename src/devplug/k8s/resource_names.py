"""The names of extended resources, by the rule that the API server and the kubelet apply. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from devplug.errors import PluginError, quoted

if TYPE_CHECKING:
    from typing import Self

_NAME_PART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def resource_name_fault(text: str) -> str | None:
    """Return what keeps `text` from being an extended resource name, or None.

    The whole rule of `IsExtendedResourceName` (pkg/apis/core/v1/helper/helpers.go), which the kubelet's
    Register applies: one `/`, no `kubernetes.io/` anywhere, no `requests.` prefix, and `requests.` + name is
    a qualified name, so the domain has at most 244 characters and the kind at most 63.
    """
    domain, slash, kind = text.partition("/")
    if not slash:
        return 'needs a domain and a kind, as in "example.com/fpga"'
    if "/" in kind:
        return 'has more than one "/"; write one domain and one kind, as in "example.com/fpga"'
    if "kubernetes.io/" in text:
        return 'contains "kubernetes.io/", which Kubernetes keeps for itself; use a domain of your own'
    if text.startswith("requests."):
        return 'starts with "requests.", which quotas use; drop that prefix'
    if len(domain) > 244:
        return f"has a domain of {len(domain)} characters; at most 244 fit"
    if not _SUBDOMAIN.fullmatch(domain):
        return f"has the domain {quoted(domain)}; it must be lower-case letters, digits, '-' and '.'"
    if len(kind) > 63:
        return f"has a kind of {len(kind)} characters; at most 63 fit"
    if not _NAME_PART.fullmatch(kind):
        return (
            f"has the kind {quoted(kind)}; it must be letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
    return None


def is_extended(name: str) -> bool:
    """Whether a resource of this name is an extended one, so that it may be a device plugin's."""
    return resource_name_fault(name) is None


class ResourceName(str):
    """A validated resource name, `vendor.com/kind`: what pods write under `limits`. Immutable."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Validate `text`; raises `PluginError` naming the rule it breaks."""
        if fault := resource_name_fault(text):
            raise PluginError(f"resource name {quoted(text)} {fault}")
        return super().__new__(cls, text)

    @property
    def kind(self) -> str:
        """The part after the slash."""
        return self.partition("/")[2]
