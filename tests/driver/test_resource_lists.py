"""When the lists of a driver's resources may be published: changes wait for each other, never for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import Device
from devplug.driver.offer import FIRST_SECONDS, GATHER_SECONDS, ResourceLists

NAMES = st.sampled_from(["example.com/a", "example.com/b", "example.com/c"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["expect", "take", "drop"]), NAMES, st.sampled_from([0.0, 0.3, 1.0, 20.0])),
    max_size=30,
)


class Watched:
    """Lists with what is known of them otherwise, looked at whenever they ask for it."""

    def __init__(self) -> None:
        self.lists = ResourceLists()
        self.longest_seconds = FIRST_SECONDS
        self.changed_at: float | None = None
        """Since when there is something that was not published."""
        self.awaited: dict[str, float] = {}
        self.listed: set[str] = set()

    def act(self, what: str, name: str, now: float) -> None:
        self.changed_at = now if self.changed_at is None else self.changed_at
        if what == "expect":
            self.lists.expect(name, now)
            self.awaited[name] = now
        elif what == "take":
            self.lists.take(name, [Device("x")])
            self.awaited.pop(name, None)
            self.listed.add(name)
        else:
            self.lists.drop(name)
            self.awaited.pop(name, None)
            self.listed.discard(name)

    def look(self, now: float) -> None:
        is_due = self.lists.advance(now)
        for name in [one for one, since in self.awaited.items() if now >= since + FIRST_SECONDS - 0.01]:
            self.act("forget", name, now)
        assert self.lists.devices.keys() == self.listed
        assert is_due or self.awaited
        if is_due:
            self.longest_seconds, self.changed_at = GATHER_SECONDS, None
        assert self.changed_at is None or now < self.changed_at + self.longest_seconds

    def look_until(self, now: float, end: float) -> None:
        self.look(now)
        while (again_at := self.lists.again_at) is not None and again_at <= end:
            assert again_at > now, "else it would be looked at again and again"
            now = again_at
            self.look(now)
        assert (again_at is None) == (not self.awaited)


@given(STEPS)
def test_each_change_is_published_soon_and_no_device_is_left_out_while_its_resource_is_awaited(
    steps: list[tuple[str, str, float]],
) -> None:
    watched, now = Watched(), 1000.0
    for what, name, seconds in steps:
        watched.act(what, name, now)
        watched.look_until(now, now + seconds)
        now += seconds


def test_a_process_that_starts_publishes_nothing_before_all_resources_have_listed() -> None:
    """Its predecessor's slices stay."""
    lists = ResourceLists()
    lists.expect("example.com/a", 0.0)
    lists.expect("example.com/b", 0.0)
    lists.take("example.com/a", [Device("x")])
    assert not lists.advance(0.0)
    assert not lists.advance(FIRST_SECONDS - 1)
    lists.take("example.com/b", [])
    assert lists.advance(FIRST_SECONDS - 1)


def test_a_process_that_starts_publishes_nothing_before_it_knows_its_resources_and_they_have_listed() -> None:
    lists = ResourceLists()
    lists.undecided = {"example.com/b"}
    lists.expect("example.com/a", 0.0)
    assert not lists.advance(0.0)
    lists.take("example.com/a", [Device("x")])
    assert not lists.advance(1.0)
    assert lists.again_at is None
    lists.expect("example.com/b", 3 * FIRST_SECONDS)
    lists.undecided = ()
    assert not lists.advance(3 * FIRST_SECONDS)
    lists.take("example.com/b", [Device("y")])
    assert lists.advance(3 * FIRST_SECONDS + 1)


def test_a_resource_that_turns_out_to_be_for_other_nodes_is_waited_for_no_more() -> None:
    lists = ResourceLists()
    lists.undecided = {"example.com/b"}
    assert not lists.advance(0.0)
    lists.undecided = ()
    assert lists.advance(1.0)


def test_an_edit_whose_resources_are_not_known_yet_keeps_no_change_back() -> None:
    lists = ResourceLists()
    assert lists.advance(0.0)
    lists.undecided = {"example.com/b"}
    lists.take("example.com/a", [Device("x")])
    assert lists.advance(1.0)
