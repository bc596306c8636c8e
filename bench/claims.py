"""Which figures docs/performance.md shows: what is wanted of each, and how it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.crowds import AT_ONCE, BESIDE, CROWD, LISTED, MANY
from bench.transports import GO, SETTLED

__all__ = ["CLAIMS", "Claim"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the page. `name` is that of the figure."""

    name: str
    how: str
    limit: float | None = None
    """The most that the daemon may have, in the figure's unit."""
    target: str = ""
    times: str = ""
    """The column of whose value `limit` is a multiple, if it is one."""


def _claims(how: str, *claims: tuple[str, float | None, str], times: str = "") -> list[Claim]:
    return [Claim(name, how, limit, target, times) for name, limit, target in claims]


CLAIMS: Final = (
    *_claims(
        "`smaps_rollup` and `stat` of a daemon with eight devices, `--listen` and the status socket, after "
        "its first list, and after /metrics, /status and /readyz were read once, which the small plugins do "
        "not have; the floor is the echo.",
        (f"resident (RSS), {SETTLED}", 28, "≤ 28 MB"),
        (f"resident, shared in parts (PSS), {SETTLED}", None, ""),
        (f"threads, {SETTLED}", 1, "1"),
    ),
    *_claims(
        "the same processes, after all the calls, devices and restarts below.",
        ("resident (RSS), after all that", None, ""),
        ("threads, after all that", 1, "1"),
    ),
    *_claims(
        "processor time of some seconds in which nothing happens.",
        (f"idle processor time, {SETTLED}", None, ""),
    ),
    *_claims(
        "a new interpreter prints a word and waits.",
        ("bare interpreter: start → first line, median", None, ""),
        ("bare interpreter: resident (RSS)", None, ""),
    ),
    *_claims(
        "a new interpreter with asyncio imports both ends of the transport.",
        ("import of the transport, median", None, ""),
    ),
    *_claims(
        "from the start of the process until the kubelet has its Register; the floor is an echo, from its "
        "start until it listens.",
        ("process start → Register, median", 100, "≤ 100 ms"),
    ),
    *_claims(
        "from Register until the kubelet has the list of eight devices; from SIGTERM until the process is "
        "gone.",
        ("Register → full list, median", None, ""),
        ("SIGTERM → gone, median", None, ""),
    ),
    *_claims(
        "one device, one call at a time over one connection, in turns of 100 calls; the floor is an echo "
        "over a Unix socket, a process of plain Python, with as many bytes there and back as the call has "
        "with HTTP/2 and all.",
        ("Allocate, one device, p50", 0.8, "≤ 0.8 × Go"),
        ("Allocate, one device, p99", 1.0, "≤ 1.0 × Go"),
        times=GO,
    ),
    *_claims(
        "a device node is made, or removed, until the kubelet has a list that says so.",
        ("device appears → list, p50", None, ""),
        ("device appears → list, p99", None, ""),
        ("device vanishes → list, p50", None, ""),
        ("device vanishes → list, p99", None, ""),
    ),
    *_claims(
        f"{AT_ONCE} calls are begun at once over one connection, and answered; the floor is as many echoes.",
        (f"{CROWD}, p50", None, ""),
        (f"{CROWD}, p99", None, ""),
    ),
    *_claims(
        f"right after those {AT_ONCE} calls were sent, a device node is made; the stream is not starved if "
        "its list does not wait for all of them.",
        (f"{BESIDE}, p50", None, ""),
        (f"{BESIDE}, p99", 100, "≤ 100 ms"),
    ),
    *_claims(
        "kubelet.sock is replaced, until the new kubelet has a Register.",
        ("kubelet restart → Register, p50", None, ""),
        ("kubelet restart → Register, p99", None, ""),
    ),
    *_claims(
        f"from Register until the kubelet has read the list of {MANY:,} IDs, at the start and after a "
        "restart of the kubelet.",
        (f"{LISTED}, the first, p50", 1000, "≤ 1 s"),
        (f"{LISTED}, once more, p50", 1000, "≤ 1 s"),
    ),
    *_claims(
        "`VmRSS` before that restart, and how much higher `VmHWM`, begun anew, is after it.",
        (f"resident (RSS), {MANY:,} devices", None, ""),
        ("bytes of that list", None, ""),
        ("greatest growth of RSS while that list is sent", None, ""),
    ),
)
