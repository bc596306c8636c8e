"""The page docs/reliability.md: each promise, how and how often it is tried, what came of it, the command."""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torture.catalogue import INVARIANTS, CaseResult, RunResult, cases
from torture.guards import GUARDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torture.catalogue import Case

RESULTS: Final = Path(__file__).parent / "results"

HEAD: Final = """\
# Reliability: what is promised, how it is tried, and what came of it

<!-- Written by `make pages` from the runs in torture/results; do not edit. -->

A device plugin runs for months beside a kubelet that restarts, hangs, upgrades and forgets, over hardware
that comes and goes. What devplug promises there are the invariants below. `make torture` attacks them: each
case is one fault, tried many times in a process of its own, with real sockets, files and processes, and after
each try it looks whether the invariants hold. The whole of it takes less than 30 minutes on two cores; a
fiftieth of every case runs in `make test-all`, and in `make test` as much as notices the absence of a guard,
with bounds on time and memory that only a hang reaches.

```console
$ make torture                                           # everything; the seed is printed
$ make torture ARGS="--seed 7 --only kubelet-restarts"   # the same chance again, of one case
$ make torture ARGS="--seed 7 --only schedules --number 4711"   # one try, again
$ make torture ARGS="--only driver-dies-in-claims --times 11"   # each step of prepare, a thousand times
$ make mutants                                           # take each guard away, and see what notices
```
"""

SANDBOX: Final = """\
## The sandbox

The sandbox stands in for a cluster, and has rules of its own. Tests hold them, not the torture.

- An unexpected error in the work on one pod: the pod gets the event `InternalError`, and the work is tried
  again after 0.1 s, then after twice as long, at most 60 s. The node and other pods go on
  (`tests/sandbox/nodes/test_restarts.py`).
- One in the admission of a pod: the pod is refused with `UnexpectedAdmissionError`, and the next one is
  admitted (`tests/kubelet/test_restart.py`).
- One in the connection to a plugin or DRA driver: the connection ends, and the kubelet goes on.
- One in a controller, at one object: the object is tried again after 0.1 s to 60 s, and holds up no other
  (`tests/sandbox/controllers/test_workqueue.py`).
- One that ends a node or a controller: it is started again after 0.1 s to 60 s once the sandbox is up;
  before that, the start fails (`tests/linux/test_supervision.py`).
- A startup or liveness probe that fails `failureThreshold` times in a row: the container is started again
  by its policy. A pod is Ready only while its readiness probes succeed
  (`tests/sandbox/nodes/test_probes.py`).
- Clients of the API server that send nothing, or half: there are at most 512 connections, with 10 s for a
  head and 30 s for a body, and unfinished ones make room first
  (`tests/sandbox/server/test_hostile_clients.py`).
"""

LIMITS: Final = """\
## How to read this

- The kubelet here is devplug's own kubelet's end, which answers as that of Kubernetes 1.36 in 10,115 recorded
  stories; a real node is not part of these runs.
- A time is what one process measured on this machine while other cases ran beside it. It is a bound that
  held, not a benchmark: for those there is `make bench`.
- A case that cannot run on a machine (no root, no mount namespaces, no compiler) says so among its figures.
- Growth of memory is taken after a warm-up: what is loaded once is no leak.
"""


def main() -> int:
    """Print the page; return 2 if there is no run to tell of."""
    runs = [RunResult.of_json(json.loads(file.read_text())) for file in sorted(RESULTS.glob("*.json"))]
    if not runs:
        print(f"no results in {RESULTS}: make torture ARGS='--keep FILE'", file=sys.stderr)
        return 2
    print(page(runs), end="")
    return 0


def page(runs: Sequence[RunResult]) -> str:
    """Return the page about these runs; of the figures, those of the last one are shown."""
    return "\n".join([HEAD, *_runs(runs), *_invariants(), *_promises(runs), *_guards(), SANDBOX, LIMITS])


def _runs(runs: Sequence[RunResult]) -> Iterator[str]:
    yield "## The runs\n"
    yield "| seed | date | machine | cases | tries | broken | minutes |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        machine = run.machine
        tries = sum(case.done for case in run.cases)
        yield (
            f"| {run.seed} | {machine['date']} | {machine['processors']} processors, {machine['memory']}, "
            f"Linux {machine['kernel']}, Python {machine['python']} | {len(run.cases)} | {tries:,} "
            f"| {len(run.broken)} | {run.seconds / 60:.1f} |"
        )
    yield ""


def _invariants() -> Iterator[str]:
    yield "## The invariants\n"
    yield "| | what must hold | cases | guards |"
    yield "|---|---|---|---|"
    for number, text in INVARIANTS.items():
        tried = sum(number in case.invariants for case in cases().values())
        guards = sum(guard.invariant == number for guard in GUARDS)
        yield f"| {number} | {_cell(text)} | {tried} | {guards} |"
    yield ""


def _promises(runs: Sequence[RunResult]) -> Iterator[str]:
    yield "## The promises\n"
    yield (
        'Each row is a case: `make torture ARGS="--only CASE"`. The count is that of one run; the figures '
        "are those of the last run that tried it; a promise counts as kept if it was in every run that did."
    )
    results: dict[str, list[CaseResult]] = {}
    for run in runs:
        for one in run.cases:
            results.setdefault(one.name, []).append(one)
    for subject, rows in groupby(cases().values(), key=_subject):
        yield f"\n### {subject}\n"
        yield "| promise | case | fault | times | invariants | kept | figures |"
        yield "|---|---|---|---|---|---|---|"
        for case in rows:
            tried = results.get(case.name, [])
            kept = "no" if any(one.broken_count for one in tried) else "yes" if tried else "not tried"
            done = tried[-1].done if tried else 0
            figures = (
                "; ".join(f"{name}: {text}" for name, text in tried[-1].figures.items()) if tried else ""
            )
            yield (
                f"| {_cell(case.promise)} | `{case.name}` | {case.fault} | {done:,} {case.unit} "
                f"| {' '.join(case.invariants)} | {kept} | {_cell(figures)} |"
            )
    yield ""


def _subject(case: Case) -> str:
    """Return the heading of a case: what the first line of its module says, without what follows a colon."""
    text = sys.modules[case.body.__module__].__doc__ or case.body.__module__
    return text.strip().splitlines()[0].partition(":")[0].rstrip(".")


def _guards() -> Iterator[str]:
    yield "## The guards\n"
    yield (
        "An invariant is as good as the test that notices when it is gone. `make mutants` takes each of "
        f"these guards out of the code in turn and runs what should notice; all {len(GUARDS)} must be seen."
    )
    yield "\n| guard | invariant | what it does | noticed by |"
    yield "|---|---|---|---|"
    for guard in GUARDS:
        name = guard.caught_by.removeprefix("case ").rpartition("/")[2].replace("::", " ")
        yield f"| {guard.name} | {guard.invariant} | {_cell(guard.what)} | `{name}` |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
