"""What a publisher knows of its slices: what it hears last counts by its version, not by when it comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devplug.driver.slices import StoredSlice, StoredSlices

ACTS = st.lists(st.sampled_from(["we write", "somebody writes", "somebody deletes"]), max_size=12)


def stored(version: int, uid: int) -> StoredSlice:
    return StoredSlice("s0", f"uid-{uid}", str(version), "uid-n1", "n1", 1, 1, ())


@given(ACTS, st.data())
def test_answers_and_events_in_any_order_come_to_what_is_stored(acts: list[str], data: st.DataObject) -> None:
    """Each event comes after the one before it, and an answer whenever it likes."""
    truth: StoredSlice | None = None
    events: list[tuple[StoredSlice, bool]] = []
    answers: list[StoredSlice] = []
    for version, act in enumerate(acts, 8):  # past 9: versions are numbers, not texts
        if act == "somebody deletes":
            if truth is None:
                continue
            events.append((stored(version, int(truth.uid.removeprefix("uid-"))), True))
            truth = None
            continue
        uid = version if truth is None else int(truth.uid.removeprefix("uid-"))
        truth = stored(version, uid)
        events.append((truth, False))
        if act == "we write":
            answers.append(truth)
    known = StoredSlices()
    while events or answers:
        if events and (not answers or data.draw(st.booleans())):
            one, is_deleted = events.pop(0)
            known.take_change(one, is_deleted=is_deleted)
        else:
            known.take_written(answers.pop(0))
    assert [*known.all()] == ([] if truth is None else [truth])


def test_a_list_is_all_that_there_is() -> None:
    known = StoredSlices()
    known.take_written(stored(10, 1))
    known.take_list([])
    assert not known
    known.take_list([stored(11, 2)])
    assert [one.version for one in known.all()] == ["11"]


def test_a_change_that_is_known_already_is_no_news() -> None:
    known = StoredSlices()
    known.take_written(stored(10, 1))
    assert not known.take_change(stored(10, 1), is_deleted=False)
    assert not known.take_change(stored(9, 0), is_deleted=True)
    assert known.take_change(stored(12, 1), is_deleted=False)
    assert known.take_change(stored(13, 1), is_deleted=True)
    assert not known
