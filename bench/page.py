"""The page docs/performance.md, written from the figures in bench/results: `python -m bench.page`.

Each claim says which figures it shows, what is wanted of them, and how they are measured.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.dra import BACK, MORE_MEMORY, PREPARED
from bench.load import AT_ONCE, BESIDE, CROWD, LISTED, MANY
from bench.report import Figure, shown
from bench.scheduler import (
    CLAIMS as CLAIM_COUNTS,
)
from bench.scheduler import (
    DEVICES_PER_NODE,
    FULL,
    LEAST_CLAIMS_PER_SECOND,
    LEAST_PODS_PER_SECOND,
    SHAPES,
    with_claims,
)
from bench.transports import COLUMNS, DAEMON, GO, SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RESULTS: Final = Path(__file__).parent / "results" / "transports.json"
SCHEDULING_RESULTS: Final = RESULTS.with_name("scheduling.json")
DRA_RESULTS: Final = RESULTS.with_name("dra.json")
HEAD: Final = """\
# What devplug costs

<!-- Written by `make pages` from the files in bench/results; do not edit. -->

A device plugin is a small thing on every node, so what counts is how much of the node it takes and how soon
it is there. These are the daemon's figures: over its own gRPC transport and over grpcio, which carried its
calls before. Beside them are two plugins that do as little as a plugin can, with our SDK and in Go, and
the floor, which is what plain Python takes that does nothing but what cannot be left out. All of them were
measured in turns in one run, so that the same noise hits them all: a ratio means more than a time.

```console
$ make bench ARGS="--only transports --keep bench/results/transports.json"   # measure, a few minutes
$ make bench ARGS="--only scheduling --keep bench/results/scheduling.json"   # the sandbox's scheduler
$ make bench ARGS="--only dra --keep bench/results/dra.json"                 # claims
$ make pages                                                                 # write this page
$ make bench CMD='./my-plugin --plugin-dir {dir} --watch {devices}'          # ours beside another plugin
```
"""
LIMITS: Final = """\
## How to read this

- The daemon is measured from outside, as a process; the kubelet's end, and the client that calls, is the same
  for all, in the process that measures.
- "Target" is what is wanted on a quiet machine. On one with other work all times grow; the ratios between
  columns stay.
- The floor has no gRPC, no HTTP/2 and no devices. Nothing written in Python can reach it.
- The small plugins (`bench/sample.py` and `bench/sample.go`, the latter on Debian's Go and grpc-go) list
  eight names for good and answer with a path made of the ID. At an Allocate the daemon looks whether the
  device is there and may be given out, and remembers that it was; these do not.
- `make bench CMD=…` puts any other plugin beside ours on your machine.
"""


OURS: Final = "devplug"
"""The column of what has no other beside it."""

LEAST_PODS: Final = {
    f"LeastAllocated, {FULL}": LEAST_PODS_PER_SECOND,
    with_claims(max(CLAIM_COUNTS)): LEAST_CLAIMS_PER_SECOND,
}
SCHEDULER: Final = f"""\
## The sandbox's scheduler

Pods decided on in a second of processor time, whether there was a node for them or not, without the API
around it. Nodes are empty at first and of several sizes, and some are tainted. Pods without claims have
{SHAPES} shapes; a pod with a claim wants one device, of a class and by a request that have a selector each,
and every second one has an alternative. Each node has {DEVICES_PER_NODE} devices, and with the most claims
the last pods find none.
"""

DRA_TARGETS: Final = {
    f"{PREPARED}, p50": (5.0, "≤ 5 ms"),
    BACK: (1000.0, "≤ 1 s"),
    MORE_MEMORY: (15.0, "≤ 15 MB"),
}
"""The most that a figure of claims may be in any column, in its unit, and how that is shown."""

DRA: Final = """\
## Claims

The daemon as a DRA driver, a process beside a kubelet's end and an API server that share one other process. A
claim has one of eight devices. Before each prepare the same claim is read by a client that is nothing but an
open connection: what the driver takes beyond that is its own. The state file and its folder are synced to the
disk in each prepare and in each unprepare; CDI files are in memory, as on a node, and in one column the state
is, too. Of the publication of many devices the API server takes most of the time.
The API server here speaks plain HTTP; TLS takes 2.3 MB more of the daemon's memory.
"""

# ── claims ──


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

# ── the page ──


@dataclass(frozen=True, slots=True)
class Run:
    """What was kept of a run: the machine, and each figure's unit and values by column."""

    machine: Mapping[str, str]
    figures: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Run:
        """Return what `as_json` has written."""
        return cls(content["machine"], {figure["name"]: figure for figure in content["figures"]})

    def figure(self, name: str, column: str) -> Figure:
        """Return one figure, without a value if there is none."""
        kept = self.figures.get(name)
        return Figure(name, kept["unit"], kept["values"].get(column)) if kept else Figure(name, "", None)

    def ratio(self, name: str, other: str) -> float | None:
        """Return how many times the other column's value ours is."""
        mine, theirs = self.figure(name, DAEMON).value, self.figure(name, other).value
        return mine / theirs if mine is not None and theirs else None


def main() -> int:
    """Print the page; return 2 if there is no run to tell of."""
    runs = []
    for kept in (RESULTS, SCHEDULING_RESULTS, DRA_RESULTS):
        if not kept.exists():
            print(f"no {kept}: make bench ARGS='--only {kept.stem} --keep FILE'", file=sys.stderr)
            return 2
        runs.append(Run.of_json(json.loads(kept.read_text())))
    print(page(*runs), end="")
    return 0


def page(run: Run, scheduling: Run, dra: Run) -> str:
    """Return the page about a run of the transports, one of the sandbox's scheduler, and one of claims."""
    parts = (_machine(run), _figures(run), _ways(), _dra(dra), _scheduling(scheduling))
    return "\n".join([HEAD, *chain(*parts), LIMITS])


def _machine(run: Run) -> Iterator[str]:
    machine = run.machine
    yield (
        f"Measured on {machine['date']}: {machine['cores']} processors, {machine['memory']}, "
        f"Linux {machine['Linux']}, Python {machine['Python']}.\n"
    )


def _figures(run: Run) -> Iterator[str]:
    yield "## The figures\n"
    others = COLUMNS[1:]
    yield f"| | target | {' | '.join((*COLUMNS, *(f'{DAEMON} : {column}' for column in others)))} | |"
    yield f"|---|---|{'---:|' * (len(COLUMNS) + len(others))}---|"
    for claim in CLAIMS:
        values = " | ".join(shown(run.figure(claim.name, column)) for column in COLUMNS)
        ratios = " | ".join(_times(run.ratio(claim.name, column)) for column in others)
        yield f"| {claim.name} | {claim.target} | {values} | {ratios} | {_outcome(claim, run)} |"
    yield ""


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _outcome(claim: Claim, run: Run) -> str:
    """Return whether a target is met; nothing where there is none."""
    if claim.limit is None:
        return ""
    value = run.ratio(claim.name, claim.times) if claim.times else run.figure(claim.name, DAEMON).value
    if value is None:
        return "not measured"
    return "met" if value <= claim.limit else "missed"


def _ways() -> Iterator[str]:
    yield "## How each is measured\n"
    told = ""
    for claim in CLAIMS:
        if claim.how != told:
            names = [one.name for one in CLAIMS if one.how == claim.how]
            yield f"- **{'**, **'.join(names)}**: {claim.how}"
            told = claim.how
    yield ""


def _scheduling(run: Run) -> Iterator[str]:
    yield SCHEDULER
    yield from _machine(run)
    yield "| | target | pods a second | |"
    yield "|---|---|---:|---|"
    for name, kept in run.figures.items():
        least = LEAST_PODS.get(name)
        value = shown(run.figure(name, OURS))
        note = "; ".join(kept["notes"].values())
        yield f"| {name} | {f'≥ {least:,}' if least else ''} | {value} | {note} |"
    yield ""


def _dra(run: Run) -> Iterator[str]:
    yield DRA
    yield from _machine(run)
    for columns, names in groupby(run.figures, key=lambda name: tuple(run.figures[name]["values"])):
        yield f"| | target | {' | '.join(columns)} | |"
        yield f"|---|---|{'---:|' * len(columns)}---|"
        for name in names:
            values = [run.figure(name, column) for column in columns]
            limit, target = DRA_TARGETS.get(name, (None, ""))
            outcome = "" if limit is None else _outcome_of(values, limit)
            yield f"| {name} | {target} | {' | '.join(map(shown, values))} | {outcome} |"
        yield ""


def _outcome_of(values: Sequence[Figure], limit: float) -> str:
    """Return whether all figures that were measured are within a limit."""
    found = [one.value for one in values if one.value is not None]
    return "not measured" if not found else "met" if max(found) <= limit else "missed"


if __name__ == "__main__":
    sys.exit(main())
