"""The state file: what is kept over an end, however it comes, and which files are refused."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import Object, text, with_part
from devplug.sandbox.api.kinds import SERVED
from devplug.sandbox.registry import EVENTS, NAMESPACES, NODES, PODS, Registry
from devplug.sandbox.statefile import StateFile, StateFileError, opened
from tests.cli.programs import ended, said_until

STORED = {one.storage: one for one in SERVED if "list" in one.verbs}.values()

CHANGES_AND_STAYS = """
import asyncio, sys
from pathlib import Path
from devplug.sandbox.registry import NODES, Registry
from devplug.sandbox.statefile import opened

async def main(path):
    with opened(path) as file:
        registry = Registry(file.contents, file.version)
        async with asyncio.TaskGroup() as group:
            group.create_task(file.run(registry))
            registry.create(NODES, "", {"metadata": {"name": "worker-0"}})
            journal = path.with_name(f"{path.name}-journal")
            # What is written is there for good once SQLite has taken the journal's header away.
            while b"worker-0" not in path.read_bytes() or any(journal.read_bytes()[:8]):
                await asyncio.sleep(0.01)
            print("it is in the file", flush=True)
            await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


def node(name: str) -> Object:
    return {"metadata": {"name": name}}


def labelled(label: str, one: Object) -> Object:
    return with_part(one, {"n": label}, "metadata", "labels")


def kept(path: Path) -> tuple[dict[str, list[Object]], int]:
    """What a new sandbox finds in the file."""
    with opened(path) as file:
        registry = Registry(file.contents, file.version)
        return contents_of(registry), registry.version


def contents_of(registry: Registry) -> dict[str, list[Object]]:
    found = {one.storage: list(registry.all(one)) for one in STORED}
    return {name: items for name, items in found.items() if items}


async def _while_kept(file: StateFile, registry: Registry, act: Callable[[Registry], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(file.run(registry))
        await asyncio.sleep(0)
        act(registry)
        task.cancel()


def changed(path: Path, act: Callable[[Registry], Any]) -> tuple[dict[str, list[Object]], int]:
    """Open the file, change something, end; return what there was last."""
    with opened(path) as file:
        registry = Registry(file.contents, file.version)
        asyncio.run(_while_kept(file, registry, act))
        return contents_of(registry), registry.version


# ── keeping ──


def test_a_new_file_has_nothing_in_it(tmp_path: Path) -> None:
    assert kept(tmp_path / "state") == ({}, 1)


def test_what_changed_last_is_kept_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def act(registry: Registry) -> None:
        for name in ("worker-0", "worker-1"):
            registry.create(NODES, "", node(name))
        registry.delete(NODES, "", "worker-1")

    last = changed(path, act)
    assert kept(path) == last
    assert [text(one, "metadata", "name") for one in last[0]["nodes"]] == ["worker-0"]


def test_versions_go_on_where_they_ended_and_never_back(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def act(registry: Registry) -> None:
        registry.create(NODES, "", node("worker-0"))
        registry.delete(NODES, "", "worker-0")

    _, version = changed(path, act)
    assert changed(path, lambda _: None)[1] == version
    assert changed(path, act)[1] == version + 2


def test_all_kinds_are_kept_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def act(registry: Registry) -> None:
        registry.create(NAMESPACES, "", {"metadata": {"name": "lab"}})
        pod: Object = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        registry.create(PODS, "lab", pod)
        event: Object = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "lab"}, "reason": "R"}
        registry.create(EVENTS, "lab", event)

    last = changed(path, act)
    assert set(last[0]) == {"namespaces", "pods", "events"}
    assert kept(path) == last


ACTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["create", "change", "delete"])))


@given(ACTS, st.integers(0, 10))
def test_whatever_happens_the_file_ends_as_the_registry_does(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, str]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"

    def do(some: list[tuple[str, str]]) -> Callable[[Registry], None]:
        def act(registry: Registry) -> None:
            for number, (name, what) in enumerate(some):
                is_there = registry.find(NODES, "", name) is not None
                if what == "create" and not is_there:
                    registry.create(NODES, "", node(name))
                elif what == "delete" and is_there:
                    registry.delete(NODES, "", name)
                elif what == "change" and is_there:
                    registry.update(NODES, "", name, partial(labelled, str(number)))

        return act

    for some in (acts[:cut], acts[cut:]):
        assert changed(path, do(some)) == kept(path)


def test_what_is_in_the_file_without_an_end_outlives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "state"
    process = subprocess.Popen(
        [sys.executable, "-c", CHANGES_AND_STAYS, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said_until(process, "it is in the file", on_error=False)
    finally:
        process.send_signal(signal.SIGKILL)
        ended(process)
    contents, version = kept(path)
    assert (list(contents), version) == (["nodes"], 2)


# ── refusing ──


def refused(path: Path) -> str:
    before = path.read_bytes()
    with pytest.raises(StateFileError) as error, opened(path):
        pass
    assert path.read_bytes() == before
    return str(error.value)


def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("my notes\n" * 500)
    assert "file is not a database" in refused(path)


def test_a_database_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE objects (mine TEXT)")
    assert "is a database of another program" in refused(path)


def test_a_file_of_a_newer_devplug_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state"
    kept(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 7")
    assert "newer devplug (layout 7, this one knows 1)" in refused(path)


def test_a_damaged_file_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def act(registry: Registry) -> None:
        for number in range(200):
            registry.create(NODES, "", node(f"worker-{number}"))

    changed(path, act)
    content = bytearray(path.read_bytes())
    content[5000:9000] = os.urandom(4000)
    path.write_bytes(content)
    assert "move it away, or name another file" in refused(path)


def test_an_entry_that_this_version_does_not_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    kept(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO objects VALUES ('widgets', '', 'w', '{}')")
    assert "it has widgets" in refused(path)


def test_two_sandboxes_cannot_keep_their_state_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with (
        opened(path),
        pytest.raises(StateFileError, match="in use, probably by another sandbox"),
        opened(path),
    ):
        pass


def test_a_file_that_cannot_be_opened_is_refused_in_words(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "such" / "folder"):
        with pytest.raises(StateFileError, match="name another file"), opened(path):
            pass


def test_an_empty_file_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch()
    assert kept(path) == ({}, 1)


def test_what_goes_wrong_while_the_file_is_open_is_not_blamed_on_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="another matter"), opened(tmp_path / "state"):
        raise ValueError("another matter")
