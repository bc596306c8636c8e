"""`make calibrate PROGRAM=...`: judge a program five times, and print the verdicts that differ between runs.

Ends with 1 if a verdict differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

RUNS = 5

Verdicts = Mapping[str, tuple[str, str]]
"""Outcome and what was seen, by the ID of the check."""


def verdicts_of(report: str) -> Verdicts:
    """Read the verdicts of one `devplug verify -o json`."""
    return {one["id"]: (one["outcome"], one["seen"]) for one in json.loads(report)["checks"]}


def differences(runs: Sequence[Verdicts]) -> list[str]:
    """Return a line for each check whose outcome is not the same in all runs, with what each run saw."""
    ids = sorted({id_ for run in runs for id_ in run})
    lines = []
    for id_ in ids:
        found = [run.get(id_, ("missing", "")) for run in runs]
        if len({outcome for outcome, _ in found}) > 1:
            shown = dict.fromkeys(f"{outcome}: {seen}" if seen else outcome for outcome, seen in found)
            lines.append(f"{id_}  {'; '.join(shown)}")
    return lines


def failures(runs: Sequence[Verdicts]) -> list[str]:
    """Return a line for each check that failed in every run, with what the last run saw."""
    return [
        f"{id_}  {seen}"
        for id_, (_, seen) in sorted(runs[-1].items())
        if all(run.get(id_, ("", ""))[0] == "failed" for run in runs)
    ]


def main(words: Sequence[str]) -> int:
    """Run `devplug verify` with these words five times; return the exit code."""
    command = [sys.executable, "-m", "devplug", "verify", "-o", "json", *words]
    runs: list[Verdicts] = []
    for number in range(1, RUNS + 1):
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if not ended.stdout:
            return ended.returncode
        runs.append(verdicts_of(ended.stdout))
        print(f"run {number} of {RUNS}: {len(runs[-1])} checks", flush=True)
    print("failed in every run:", *(failures(runs) or ["none"]), sep="\n  ")
    different = differences(runs)
    print("different between runs:", *(different or ["none"]), sep="\n  ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
