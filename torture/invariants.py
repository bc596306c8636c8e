"""What must hold after every fault, as one table: a case names the rows that it looks at."""

from __future__ import annotations

from typing import Final

__all__ = ["INVARIANTS"]

INVARIANTS: Final = {
    "I1": "no device is in two containers that run",
    "I2": "the kubelet's view is the truth within 2 s of the fault's end; after its restart p99 within 1 s",
    "I3": "descriptors, tasks and threads are back where they were; memory has grown by 2 MiB at most",
    "I4": "the plugin never ends because of what a peer does",
    "I5": "no socket of ours is left after an end, and nobody else's is removed",
    "I6": "Allocate answers, and within its deadline",
    "I7": "at most one Register at a time for each resource, and few of them in a minute",
    "I8": "the last list that the kubelet got is the truth",
    "I9": "a device has the ID that it had before",
    "I10": "one line in the log for each change of state",
    "I11": "each refusal has the code and the text of its row in the table",
    "I12": "an ID that a container may hold is never dropped from the list",
}
