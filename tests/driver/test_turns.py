"""Whose turn it is to publish, of the instances of a driver on one node."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.driver.publisher import Turns

OWNER = (
    "import sys; from pathlib import Path; from devplug.driver.publisher import Turns; "
    "turns = Turns(Path(sys.argv[1])); print(turns.is_ours(is_ready=True), flush=True); sys.stdin.read()"
)


class Instance:
    def __init__(self, path: Path) -> None:
        self.turns = Turns(path)
        self.is_ready = False

    def is_asked(self) -> bool:
        return self.turns.is_ours(is_ready=self.is_ready)


EVENTS = st.tuples(st.sampled_from(["begins", "is ready", "is not ready", "ends", "removed"]), st.integers(0))


@given(st.lists(EVENTS, max_size=30))
def test_whatever_happens_the_one_that_was_ready_last_publishes_and_before_there_is_one_all_do(
    events: list[tuple[str, int]],
) -> None:
    living: list[Instance] = []
    placed: list[Instance] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "driver" / "publisher.lock"
        for event, number in events:
            one = living[number % len(living)] if living else None
            if event == "begins":
                living.append(Instance(path))
            elif event == "removed":  # the order is lost with it
                path.unlink(missing_ok=True)
                placed = []
            elif one is not None and event == "ends":
                living.remove(one)
                placed = [other for other in placed if other is not one]
                one.turns.close()
            elif one is not None:
                one.is_ready = event == "is ready"
            for other in living:
                other.is_asked()
                if other.is_ready and other not in placed:
                    placed.append(other)
            assert [one for one in living if one.is_asked()] == (placed[-1:] or living)
        for one in living:
            one.turns.close()


def test_the_turn_of_a_process_that_dies_goes_back_to_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "publisher.lock"
    turns = Turns(path)
    assert turns.is_ours(is_ready=True)
    command = [sys.executable, "-c", OWNER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as successor:
        assert successor.stdout is not None
        assert successor.stdout.readline() == "True\n"
        assert not turns.is_ours(is_ready=True)
        successor.kill()
        successor.wait()
        assert turns.is_ours(is_ready=True)
    turns.close()


def test_where_nothing_can_be_locked_all_publish_and_say_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "driver").touch()
    one, other = (Turns(tmp_path / "driver" / "publisher.lock") for _ in range(2))
    assert all(turns.is_ours(is_ready=True) for turns in (one, other, one))
    assert [vars(record)["reason"] for record in caplog.records] == 2 * ["File exists"]
