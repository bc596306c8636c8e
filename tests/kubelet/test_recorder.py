"""Checkpoint files made again and again: what was kept of the one before changes nothing in the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import ContainerResponse
from devplug.kubelet.allocation import Ledger, Need
from devplug.kubelet.checkpoint import Checkpoint, CheckpointEntry, decode, encode
from devplug.kubelet.records import Recorder, assignments_of
from devplug.kubelet.resources import disconnected, dropped, listed
from devplug.wire.messages import CONTAINER_RESPONSE
from tests.kubelet.fakes import OTHER_RESOURCE, RESOURCE, healthy

if TYPE_CHECKING:
    from collections.abc import Sequence

names = st.sampled_from([RESOURCE, OTHER_RESOURCE])
ids = st.lists(st.sampled_from(["d0", "d1", "d<2>", "é"]), max_size=3, unique=True).map(tuple)
pods = st.sampled_from(["u0", "u1", "u2"])

steps = st.one_of(
    st.tuples(st.just("list"), names, ids),
    st.tuples(st.just("disconnect"), names, st.just(())),
    st.tuples(st.just("drop"), names, st.just(())),
    st.tuples(st.just("end"), pods, st.just(())),
    st.tuples(pods, names, ids),
)


def take(step: tuple[str, str, Sequence[str]], ledger: Ledger) -> None:
    """Change the ledger; a step that begins with a pod gives IDs to it."""
    what, name, device_ids = step
    if what == "list":
        ledger.update(name, listed(ledger.state(name), healthy(*device_ids)))
    elif what == "disconnect":
        ledger.update(name, disconnected(ledger.state(name)))
    elif what == "drop":
        ledger.update(name, dropped(ledger.state(name)))
    elif what == "end":
        ledger.free_inactive({held.key[0] for held in ledger.assignments} - {name})
    else:
        response = ContainerResponse(envs={"DEVICES": " ".join(device_ids)})
        ledger.assign(Need(what, "c", name, len(device_ids)), device_ids, response, compat=False)


def anew(ledger: Ledger) -> bytes:
    """Return the file of a ledger, made without any memory."""
    entries = tuple(
        CheckpointEntry(
            *held.key, held.devices_per_numa, CONTAINER_RESPONSE.encode(held.allocation.container_response)
        )
        for held in ledger.assignments
    )
    registered = {
        name: tuple(sorted(state.healthy))
        for name, state in ledger.resources.items()
        if state.healthy is not None
    }
    return encode(Checkpoint(entries or None, registered))


@given(st.lists(steps, max_size=30))
def test_a_file_is_the_same_whatever_was_kept_of_those_before(
    taken: Sequence[tuple[str, str, Sequence[str]]],
) -> None:
    ledger, recorder = Ledger(), Recorder(CONTAINER_RESPONSE.encode)
    for step in taken:
        take(step, ledger)
        content = recorder.content(ledger)
        assert content == anew(ledger)
        assert tuple(assignments_of(decode(content), CONTAINER_RESPONSE.decode)) == ledger.assignments


def test_an_entry_that_comes_first_changes_no_more_than_itself_and_the_checksum() -> None:
    """All others are kept, and go on from another checksum."""
    ledger, recorder = Ledger(), Recorder(CONTAINER_RESPONSE.encode)
    ledger.update(RESOURCE, listed(ledger.state(RESOURCE), healthy(*(f"d{n}" for n in range(40)))))
    for number in reversed(range(40)):
        take((f"u{number:02}", RESOURCE, [f"d{number}"]), ledger)
        assert recorder.content(ledger) == anew(ledger)
