"""What a shell is given to complete our commands: it works in the real one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("devplug")

ASK = """\
PATH="{folder}:$PATH"
eval "$(devplug completion bash)"
COMP_WORDS=({words}) COMP_CWORD={at}
_devplug_completion devplug
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "answer"),
    [("devplug val", "validate"), ("devplug run --plu", "--plugin-dir"), ("devplug sandbox unp", "unplug")],
)
def test_bash_completes_commands_and_options(words: str, answer: str) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    script = ASK.format(folder=PROGRAM.parent, words=words, at=len(words.split()) - 1)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == [answer]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_of_theirs(shell: str) -> None:
    done = subprocess.run(
        [PROGRAM, "completion", shell], capture_output=True, text=True, check=True, timeout=30
    )
    assert f"_DEVPLUG_COMPLETE={shell}_complete" in done.stdout
