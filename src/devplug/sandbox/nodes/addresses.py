"""The addresses of a node's pods: one each for as long as it is there. Nothing listens on them. Pure."""

from __future__ import annotations

from ipaddress import IPv4Network

__all__ = ["AddressPool"]

_RESERVED = 2
"""The network's own address and the gateway's."""


class AddressPool:
    """The addresses of one node, given out in turn; lives as long as the node."""

    def __init__(self, subnet: str) -> None:
        self._network = IPv4Network(subnet)
        self._taken: dict[str, int] = {}
        self._last = _RESERVED - 1

    def take(self, pod_uid: str) -> str:
        """Return a pod's address, a new one if it has none; empty if all are taken."""
        if pod_uid not in self._taken:
            used = set(self._taken.values())
            places = range(_RESERVED, self._network.num_addresses - 1)
            after = [*range(self._last + 1, places.stop), *places]
            place = next((one for one in after if one not in used), None)
            if place is None:
                return ""
            self._taken[pod_uid] = self._last = place
        return str(self._network[self._taken[pod_uid]])

    def release(self, pod_uid: str) -> None:
        """Take a pod's address back; one without is no error."""
        self._taken.pop(pod_uid, None)
