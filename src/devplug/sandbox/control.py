"""The sandbox's own operations over HTTP, below `/sandbox/v1/`, and their answers.

What an operation does is the cluster's; the other end is `client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from devplug.errors import DevplugError, quoted
from devplug.k8s.objects import Object, entries, part, text, whole
from devplug.sandbox.api.errors import StatusError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence


PREFIX: Final = "/sandbox/v1/"

_EXIT_CODE_MOST: Final = 255


class Cluster(Protocol):
    """The sandbox to operate on. Its methods raise `DevplugError`, which is sent to the caller."""

    def nodes(self) -> Sequence[str]:
        """Return the names of the nodes."""

    async def restart_kubelet(self, node: str) -> None:
        """Restart a node's kubelet; containers run on. Returns when it is back."""

    async def disconnect(self, node: str) -> None:
        """Take the API server away from a node; its containers run on."""

    async def reconnect(self, node: str) -> None:
        """Bring the API server back to a node. Returns when its kubelet knows its pods again."""

    async def reboot(self, node: str) -> None:
        """Reboot a node: all containers end. Returns when its kubelet is back."""

    def description(self, node: str) -> Object:
        """Return what there is to know of a node's devices and pods."""

    def plugged(self) -> Sequence[str]:
        """Return the names of the devices that are plugged in."""

    def plug(self, names: list[str]) -> Sequence[str]:
        """Plug devices in; return those that were not there."""

    def unplug(self, names: list[str]) -> Sequence[str]:
        """Pull devices out; return those that were there."""

    async def end_pod(self, namespace: str, name: str, container: str | None, exit_code: int) -> None:
        """End a pod's containers, or one of them, as if its program had."""

    def down(self) -> None:
        """Begin to end the sandbox; the answer to who asked for it still goes out."""


class _RefusedError(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, why: str) -> None:
        self.code = code
        super().__init__(why)


class Control:
    """Answers the requests below `/sandbox/v1/`; lives as long as the API server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of_nodes: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "disconnect": cluster.disconnect,
            "reboot": cluster.reboot,
            "reconnect": cluster.reconnect,
            "restart-kubelet": cluster.restart_kubelet,
        }

    async def handle(self, method: str, path: str, body: object) -> tuple[int, Object] | None:
        """Answer one request, its body decoded, with a status code and an object; None for other paths.

        What goes wrong is answered as `{"error": "..."}`.
        """
        if not path.startswith(PREFIX):
            return None
        steps = [unquote(step) for step in path.removeprefix(PREFIX).split("/")]
        try:
            return 200, await self._answer(method, steps, body)
        except _RefusedError as refused:
            return refused.code, {"error": str(refused)}
        except StatusError as error:
            return error.code, {"error": str(error)}
        except DevplugError as error:
            return 422, {"error": str(error)}

    async def _answer(self, method: str, steps: list[str], body: object) -> Object:
        cluster = self._cluster
        match method, steps:
            case "GET", ["nodes"]:
                return {"nodes": [cluster.description(name) for name in cluster.nodes()]}
            case "GET", ["nodes", name]:
                return cluster.description(self._node(name))
            case "POST", ["nodes", name, operation] if operation in self._of_nodes:
                await self._of_nodes[operation](self._node(name))
                return {}
            case "GET", ["devices"]:
                return {"names": list(cluster.plugged())}
            case "POST", ["devices", "plug"]:
                return {"names": list(cluster.plug(_names(body)))}
            case "POST", ["devices", "unplug"]:
                return {"names": list(cluster.unplug(_names(body)))}
            case "POST", ["pods", namespace, name, "end"]:
                container = text(body, "container") or None
                await cluster.end_pod(namespace, name, container, _exit_code(body))
                return {}
            case "POST", ["down"]:
                cluster.down()
                return {}
        raise _RefusedError(404, f"this sandbox has no operation {method} {PREFIX}{'/'.join(steps)}")

    def _node(self, name: str) -> str:
        if name not in self._cluster.nodes():
            known = ", ".join(self._cluster.nodes())
            raise _RefusedError(404, f"the sandbox has no node {quoted(name)}; it has {known}")
        return name


def _names(body: object) -> list[str]:
    names = entries(body, "names")
    if not names or not all(isinstance(name, str) for name in names):
        raise _RefusedError(400, 'name the devices: {"names": ["tty0"]}')
    return [str(name) for name in names]


def _exit_code(body: object) -> int:
    given = part(body, "exitCode")
    code = whole(body, "exitCode")
    if (given is not None and code != given) or not 0 <= code <= _EXIT_CODE_MOST:
        raise _RefusedError(400, f"exitCode is a number from 0 to {_EXIT_CODE_MOST}")
    return code
