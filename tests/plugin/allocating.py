"""Plugins with an `allocate`, in a thread or on the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

import pytest

from devplug import ContainerResponse, Device
from tests.plugin.fakes import Listed

ADVICE = "delete and recreate the pod to get another device"


class InThread(Listed):
    """A plugin whose `allocate` is a `def`: it runs `code`, and notes the thread that it ran in."""

    def __init__(self, code: Callable[[Sequence[Device]], Any] = ContainerResponse.of) -> None:
        self.code = code
        self.threads: list[threading.Thread] = []

    def allocate(self, devices: Sequence[Device], /) -> Any:
        self.threads.append(threading.current_thread())
        return self.code(devices)


class OnLoop(InThread):
    """A plugin whose `allocate` is an `async def`, and else as that one."""

    async def allocate(self, devices: Sequence[Device], /) -> Any:
        answer = super().allocate(devices)
        return await answer if isawaitable(answer) else answer


EITHER = pytest.mark.parametrize("kind", [InThread, OnLoop], ids=["def", "async def"])
