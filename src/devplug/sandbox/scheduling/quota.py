"""Whether a pod may be made where its namespace has quotas (quota/v1/evaluator/core/pods.go). Pure.

Kept are the number of pods and, of extended resources, `requests.<name>`: `<name>` and `limits.<name>` may
stand in a quota, and never matter. What else a quota may limit is told in its status, and refuses nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.devices import resource_name_fault
from devplug.errors import DevplugError
from devplug.sandbox.scheduling.values import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.sandbox.scheduling.values import Shape

__all__ = ["Quota", "QuotaExceededError", "admit", "usage"]

_PREFIX = "requests."


class QuotaExceededError(DevplugError):
    """A pod asks for more than its namespace may have: status 403, Forbidden, with this text as message."""

    def __init__(
        self, pod_name: str, quota: Quota, requested: Mapping[str, int], used: Mapping[str, int]
    ) -> None:
        self.pod_name = pod_name
        self.quota_name = quota.name
        limited = {key: quota.hard[key] for key in requested}
        self.why = (
            f"exceeded quota: {quota.name}, requested: {_listed(requested)}, "
            f"used: {_listed({key: used.get(key, 0) for key in requested})}, limited: {_listed(limited)}"
        )
        """The message without the pod."""
        super().__init__(f'pods "{pod_name}" is forbidden: {self.why}')


@dataclass(frozen=True, slots=True)
class Quota:
    """What a namespace may have, as far as it is about devices."""

    name: str
    hard: Mapping[str, int] = field(default_factory=dict, hash=False)
    """By key, as it stands in the quota; keys that are not kept do not matter here."""


def usage(shapes: Iterable[Shape]) -> dict[str, int]:
    """Return what pods use, by quota key. The caller leaves out who has ended, or hangs past its grace."""
    used: dict[str, int] = {PODS: 0}
    for shape in shapes:
        used[PODS] += 1
        for name, amount in shape.requests:
            if resource_name_fault(name) is None:
                used[_PREFIX + name] = used.get(_PREFIX + name, 0) + amount
    return used


def admit(pod_name: str, shape: Shape, quotas: Iterable[Quota], existing: Iterable[Shape]) -> None:
    """Let a pod be made beside those that exist in its namespace. Raises `QuotaExceededError`.

    The first quota that it breaks is told of, by name, with all that it breaks there.
    """
    requested, used = usage([shape]), usage(existing)
    for quota in sorted(quotas, key=lambda one: one.name):
        exceeded = {
            key: amount
            for key, amount in requested.items()
            if key in quota.hard and used.get(key, 0) + amount > quota.hard[key]
        }
        if exceeded:
            raise QuotaExceededError(pod_name, quota, exceeded, used)


def _listed(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{key}={amounts[key]}" for key in sorted(amounts))
