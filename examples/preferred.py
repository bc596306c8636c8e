"""Preferred allocation: chips on boards, where all chips of a container should be on one board.

Run `python examples/preferred.py` on a node where /dev/chip1.3 is the chip 3 of board 1, or name another
folder that has such nodes: `python examples/preferred.py DEV`. The kubelet asks before it gives chips out;
it stays within what its topology manager has chosen.
"""

import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from devplug import Device, DevicePlugin, run, watch_paths


class Chips(DevicePlugin):
    resource_name = "example.com/chip"

    def __init__(self, dev: str = "/dev") -> None:
        self.nodes = f"{dev}/chip[0-9]*.[0-9]*"

    async def devices(self) -> AsyncIterator[list[Device]]:
        async for nodes in watch_paths(self.nodes):
            yield [
                Device(node.name, device_nodes=[node], attributes={"board": node.name.partition(".")[0]})
                for node in nodes
            ]

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> list[Device]:
        """Rank for as few boards as can be, and of those that will do the one with the least left over."""
        free = defaultdict(list)
        for chip in available:
            if chip not in must_include:
                free[chip.attributes["board"]].append(chip)
        begun = {chip.attributes["board"] for chip in must_include}
        missing = size - len(must_include) - sum(len(free[board]) for board in begun)

        def rank(board: str) -> tuple[bool, bool, int]:
            """First what is begun, then the smallest that has enough, then the largest."""
            count = len(free[board])
            return board not in begun, count < missing, count if count >= missing else -count

        return [chip for board in sorted(free, key=rank) for chip in free[board]]


if __name__ == "__main__":
    run(Chips(*sys.argv[1:2]))
