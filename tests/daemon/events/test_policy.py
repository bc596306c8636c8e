"""What the cluster is told after each look: which Events, what the condition says, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.daemon.events.objects import MESSAGE_LIMIT_BYTES
from devplug.daemon.events.policy import (
    BURST,
    FAULT_SECONDS,
    HEARTBEAT_SECONDS,
    PAUSE_SECONDS,
    REFILL_SECONDS,
    SAME_SECONDS,
    Report,
    ReportedState,
    next_report,
)
from devplug.status import ProcessStatus, Takeover
from tests.daemon.events.statuses import config, device, resource, status

START = 1_700_000_000.0
GOOD = status(resource(device("a0"), device("a1")))
ILL = status(resource(device("a0", "link down", "p"), device("a1")))
NOT_THERE = status(resource(fault="no kubelet is connected"))
TAKEN = status(
    replace(
        resource(device("a"), fault="another plugin"),
        is_registered=True,
        takeover=Takeover(signs=("listed",), since=1.0, reason="another plugin", is_lost=True),
    )
)


@dataclass
class Cluster:
    """Somebody who is told of one look after the other."""

    told: ReportedState = field(default_factory=ReportedState)
    before: ProcessStatus | None = None
    now: float = START

    def sees(self, after: ProcessStatus, later_seconds: float = 0.0) -> Report:
        self.now += later_seconds
        telling = next_report(self.told, self.before, after, self.now)
        self.told, self.before = telling.reported, after
        return telling

    def hears(self, after: ProcessStatus, later_seconds: float = 0.0) -> list[str]:
        """The events, as `reason message`."""
        events = self.sees(after, later_seconds).events
        return [f"{event.notice.reason} {event.notice.message}" for event in events]


def after(*looks: ProcessStatus) -> Cluster:
    """A cluster that has been told of these looks, ten minutes ago and more."""
    cluster = Cluster()
    for look in looks:
        cluster.sees(look, 2 * SAME_SECONDS)
    cluster.now += 2 * SAME_SECONDS
    return cluster


# ── events ──


def test_the_first_look_tells_what_is_registered_and_nothing_of_devices() -> None:
    assert Cluster().hears(ILL) == [
        "ResourceReady example.com/a: registered with the kubelet, 1 of 2 devices Healthy"
    ]


def test_a_device_that_becomes_unhealthy_is_told_with_reason_and_pod() -> None:
    (event,) = after(GOOD).sees(ILL).events
    assert event.notice.message == "example.com/a: 1 device Unhealthy: a0 (link down; held by default/p)"
    assert (str(event.notice.reason), event.notice.is_warning) == ("DeviceUnhealthy", True)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (ILL, GOOD, ["DeviceHealthy example.com/a: 1 device Healthy again: a0"]),
        (GOOD, GOOD, []),
        (
            GOOD,
            status(resource(device("a1"), device("a2"))),
            [
                "DeviceAdded example.com/a: 1 device added: a2",
                "DeviceRemoved example.com/a: 1 device removed: a0",
            ],
        ),
        (GOOD, status(resource(*GOOD.resources[0].devices, device("x", "gone"))), None),
        (ILL, status(resource(device("a0", "another reason", "p"), device("a1"))), []),
        (GOOD, status(), []),
        (GOOD, status(resource(device("a0", "not in the file", "p"), is_retired=True)), []),
        (
            GOOD,
            replace(GOOD, config=config(1.0, "line 3: no such key")),
            [
                (
                    "ConfigRefused devplug.yaml: not applied; the previous configuration stays in effect: "
                    "line 3: no such key"
                )
            ],
        ),
        (GOOD, replace(GOOD, config=config(2.0)), ["ConfigApplied devplug.yaml: applied"]),
    ],
)
def test_a_change_between_two_looks_is_told_once(
    before: ProcessStatus, now: ProcessStatus, told: list[str] | None
) -> None:
    cluster = after(before)
    heard = cluster.hears(now)
    assert (
        heard == told
        if told is not None
        else [line.split()[0] for line in heard] == ["DeviceAdded", "DeviceUnhealthy"]
    )
    assert cluster.hears(now, 1) == []


def test_many_devices_are_one_message_that_names_a_few() -> None:
    before = status(resource(*(device(f"d{number:03}") for number in range(100))))
    now = status(resource(*(device(f"d{number:03}", "too hot") for number in range(100))))
    (message,) = after(before).hears(now)
    assert message == (
        "DeviceUnhealthy example.com/a: 100 devices Unhealthy: d000 (too hot), d001 (too hot), "
        "d002 (too hot), d003 (too hot), d004 (too hot) and 95 more"
    )


def test_a_message_is_never_longer_than_the_api_allows() -> None:
    (event,) = after(GOOD).sees(status(resource(device("a0", "ü" * 2000), device("a1")))).events
    assert len(event.notice.message.encode()) <= MESSAGE_LIMIT_BYTES


def test_a_device_that_comes_before_the_resource_was_registered_is_no_news() -> None:
    cluster = Cluster()
    cluster.hears(status(resource(fault="there is no list of devices yet")))
    assert cluster.hears(GOOD, 1) == [
        "ResourceReady example.com/a: registered with the kubelet, 2 of 2 devices Healthy"
    ]


def test_a_resource_that_is_not_ready_is_told_after_a_minute_and_when_it_is_again() -> None:
    cluster = after(GOOD)
    assert cluster.hears(NOT_THERE) == ["DeviceRemoved example.com/a: 2 devices removed: a0, a1"]
    assert cluster.hears(NOT_THERE, FAULT_SECONDS - 1) == []
    assert cluster.hears(NOT_THERE, 1) == [
        "ResourceNotReady example.com/a: not ready for 60 s: no kubelet is connected"
    ]
    assert cluster.hears(NOT_THERE, 100) == []
    assert [one.split()[0] for one in cluster.hears(GOOD, 1)] == ["DeviceAdded", "ResourceReady"]


def test_a_restart_of_the_kubelet_is_no_event() -> None:
    cluster = after(GOOD)
    gone = status(resource(*GOOD.resources[0].devices, fault="no kubelet is connected"))
    assert cluster.hears(gone) == []
    assert cluster.hears(GOOD, 20) == []


def test_a_resource_that_waits_for_its_first_device_is_never_told_as_not_ready() -> None:
    waits = status(replace(resource(), is_registered=False))
    cluster = Cluster()
    assert cluster.hears(waits) == []
    assert cluster.hears(waits, 1000) == []


# ── what repeats itself ──


def test_what_repeats_itself_within_ten_minutes_is_one_event_that_is_counted() -> None:
    cluster = after(GOOD)
    first = cluster.sees(ILL).events[0]
    cluster.sees(GOOD, 1)
    second = cluster.sees(ILL, 1).events[0]
    assert (first.count, first.is_new) == (1, True)
    assert (second.count, second.is_new, second.suffix) == (2, False, first.suffix)
    assert second.last_at - second.first_at == 2
    cluster.sees(GOOD, 1)
    later = cluster.sees(ILL, SAME_SECONDS + 1).events[0]
    assert (later.count, later.is_new) == (1, True)
    assert later.suffix != first.suffix


def test_a_flood_is_cut_and_what_was_cut_is_counted() -> None:
    cluster = after(GOOD)
    written = [event for look in range(200) for event in cluster.sees(GOOD if look % 2 else ILL, 0.5).events]
    assert len(written) == BURST
    last = cluster.sees(ILL, REFILL_SECONDS).events[0]
    assert last.count == 101


def test_an_event_that_was_cut_at_its_first_time_is_new_when_it_is_written() -> None:
    cluster = after(GOOD)
    names = [f"example.com/r{number}" for number in range(BURST + 1)]
    good = status(*(resource(device("d"), name=name) for name in names))
    ill = status(*(resource(device("d", "x"), name=name) for name in names))
    cluster.sees(good)
    cluster.sees(ill, BURST * REFILL_SECONDS)
    cluster.sees(good, 1)
    telling = cluster.sees(ill, REFILL_SECONDS)
    assert [(event.is_new, event.count) for event in telling.events] == [(False, 2)]
    ledger = telling.reported.ledger.events
    assert [event.is_new for (reason, _), event in ledger.items() if reason == "DeviceUnhealthy"].count(
        True
    ) == 1


# ── the condition ──


def said(telling: Report) -> tuple[str, str, str] | None:
    found = telling.condition
    return (str(found.status), found.reason, found.message) if found else None


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (GOOD, ("True", "DevicesHealthy", "example.com/a: 2")),
        (
            ILL,
            (
                "False",
                "DevicesUnhealthy",
                "example.com/a: 1 of 2 Unhealthy: a0 (link down; held by default/p)",
            ),
        ),
        (status(), ("True", "NoResources", "no resource of the configuration is for this machine")),
        (
            status(resource(device("a", "x"), is_retired=True)),
            ("True", "NoResources", "no resource of the configuration is for this machine"),
        ),
        (NOT_THERE, ("False", "ResourcesNotReady", "example.com/a: no kubelet is connected")),
        (
            status(replace(resource(device("a"), fault="devices() fails: x"), is_registered=True)),
            ("Unknown", "DiscoveryFailing", "example.com/a: devices() fails: x"),
        ),
        (TAKEN, ("False", "ResourcesNotReady", "example.com/a: another plugin")),
    ],
)
def test_the_condition_says_what_the_node_is_good_for(
    look: ProcessStatus, expected: tuple[str, str, str]
) -> None:
    cluster = Cluster()
    first, later = said(cluster.sees(look)), said(cluster.sees(look, FAULT_SECONDS))
    assert (first or later) == expected


def test_nothing_is_said_of_a_daemon_that_has_just_begun() -> None:
    cluster = Cluster()
    assert cluster.sees(NOT_THERE).condition is None
    assert said(cluster.sees(GOOD, 5)) == ("True", "DevicesHealthy", "example.com/a: 2")


def test_a_condition_that_stays_is_written_every_five_minutes_with_the_time_of_its_last_change() -> None:
    cluster = Cluster()
    first = cluster.sees(GOOD).condition
    assert first is not None
    assert cluster.sees(GOOD, HEARTBEAT_SECONDS - 1).condition is None
    again = cluster.sees(GOOD, 1).condition
    assert again == replace(first, at=first.at + HEARTBEAT_SECONDS)
    other = cluster.sees(ILL, 20).condition
    assert other is not None
    assert other.since == other.at == cluster.now


def test_another_message_alone_is_no_transition() -> None:
    cluster = Cluster()
    first = cluster.sees(GOOD).condition
    more = cluster.sees(status(resource(device("a0"), device("a1"), device("a2"))), 20).condition
    assert first is not None
    assert more is not None
    assert (more.message, more.since) == ("example.com/a: 3", first.since)


def test_a_condition_that_flaps_is_written_every_ten_seconds_and_as_it_is_then() -> None:
    cluster = Cluster()
    cluster.sees(GOOD)
    telling = cluster.sees(ILL, 1)
    assert telling.condition is None
    assert telling.again_seconds == PAUSE_SECONDS - 1
    assert said(cluster.sees(ILL, telling.again_seconds)) is not None


def test_a_restart_of_the_kubelet_changes_nothing_that_the_condition_says() -> None:
    cluster = Cluster()
    cluster.sees(GOOD)
    telling = cluster.sees(status(resource(*GOOD.resources[0].devices, fault="no kubelet is connected")), 15)
    assert telling.condition is None
    assert telling.again_seconds == FAULT_SECONDS


looks = st.sampled_from(
    [GOOD, ILL, NOT_THERE, status(), status(resource(device("a0"), name="example.com/b"), *GOOD.resources)]
)


@given(st.lists(st.tuples(looks, st.floats(-100, 1000)), max_size=30))
def test_whatever_comes_the_next_look_is_due_and_no_event_is_made_twice(
    story: list[tuple[ProcessStatus, float]],
) -> None:
    cluster = Cluster()
    made: set[str] = set()
    for look, seconds in story:
        telling = cluster.sees(look, seconds)
        assert 0 <= telling.again_seconds <= HEARTBEAT_SECONDS
        new = {event.suffix for event in telling.events if event.is_new}
        assert not new & made
        assert all(event.suffix in made | new for event in telling.events)
        made |= new
        # What is due is told then: nobody looks again and again at what stays.
        if telling.again_seconds == 0:
            assert cluster.sees(look).again_seconds > 0
