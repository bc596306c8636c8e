"""Runs the right plugin, or a mutant, as a program: `python -m tests.conformance.play NAME DIR WORK`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conformance.mutants import mutants
from tests.conformance.right import RightPlugin, play

if __name__ == "__main__":
    name, folder, work = sys.argv[1:4]
    plugin = RightPlugin if name == "right" else mutants()[name]
    sys.exit(play(plugin, Path(folder), Path(work)))
