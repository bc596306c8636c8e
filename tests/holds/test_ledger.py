"""What is in use, when it is free, and what is evidence for that."""

from __future__ import annotations

import pytest

from devplug.holds.hardware import Use
from devplug.holds.held_device import Allocated, Released, Remembered, ledger_memory, ledger_text
from devplug.holds.ledger import KEPT_LIMIT, Ledger
from devplug.wire.values import PodResources
from tests.holds.listings import KUBELET, NEXT_KUBELET, RESOURCE, RULES, holder, pod, pods

OTHER = pod("other", "z")
"""Holds a device for ever."""

STATIC = pod("static-node1", "s")
"""What a kubelet lists that has not heard from the API server yet."""


def new_ledger(*first_answer: PodResources) -> Ledger:
    """A ledger that knows nothing yet, or this first answer, asked for at 0."""
    ledger = Ledger(RULES)
    if first_answer:
        ledger.listed(first_answer, 0, KUBELET)
    return ledger


def restarted(ledger: Ledger, now: float) -> Ledger:
    """The ledger of the next process, which has read the file of this one."""
    text = ledger_text(RESOURCE, ledger.memory(RESOURCE))
    ledger = new_ledger()
    ledger.recall(RESOURCE, ledger_memory(text.encode(), RESOURCE), now)
    return ledger


# ── in use ────────────────────────────────────────────────────────────────────────────────────────


def test_before_the_first_answer_anything_may_be_held() -> None:
    ledger = new_ledger()
    assert (ledger.is_known, ledger.may_be_held(RESOURCE, "a")) == (False, True)
    ledger.listed((), 1, KUBELET)
    assert (ledger.is_known, ledger.may_be_held(RESOURCE, "a")) == (True, False)


def test_what_we_gave_out_is_in_use_at_once() -> None:
    ledger = new_ledger()
    ledger.listed((), 1, KUBELET)
    ledger.allocated(RESOURCE, ["a", "b"], 2)
    assert ledger.held_ids(RESOURCE) == {"a", "b"}
    assert ledger.holders_of(RESOURCE, "a") == ()
    assert ledger.held_ids("example.com/other") == set()


def test_what_an_answer_shows_is_in_use_with_its_holder() -> None:
    ledger = new_ledger()
    ledger.listed((pod("p", "a", "a"),), 1, KUBELET)
    assert ledger.held_ids(RESOURCE) == {"a"}
    assert ledger.holders_of(RESOURCE, "a") == (holder("p"),)


def test_the_first_answer_is_no_news_and_later_ones_are() -> None:
    ledger = new_ledger()
    assert ledger.listed((pod("p", "a"),), 1, KUBELET) == ()
    assert ledger.listed(pods({"p": "a", "q": "b"}), 11, KUBELET) == (Allocated(RESOURCE, "b", holder("q")),)
    assert ledger.listed(pods({"p": "a", "q": "b"}), 21, KUBELET) == ()


# ── release ───────────────────────────────────────────────────────────────────────────────────────


def test_a_device_is_free_after_two_answers_a_period_apart() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    assert ledger.listed((OTHER,), 10, KUBELET) == ()
    assert ledger.listed((OTHER,), 11, KUBELET) == ()
    assert ledger.held_ids(RESOURCE) == {"a", "z"}
    assert ledger.listed((OTHER,), 20, KUBELET) == (Released(RESOURCE, "a", holder("p")),)
    assert ledger.held_ids(RESOURCE) == {"z"}
    assert ledger.listed((OTHER,), 30, KUBELET) == ()


def test_a_device_that_is_listed_again_in_between_was_not_released() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    ledger.listed((OTHER,), 10, KUBELET)
    assert ledger.listed((OTHER, pod("p", "a")), 20, KUBELET) == ()
    assert ledger.listed((OTHER,), 30, KUBELET) == ()
    assert ledger.listed((OTHER,), 40, KUBELET) == (Released(RESOURCE, "a", holder("p")),)


def test_a_device_that_another_pod_has_got_is_released_but_not_free() -> None:
    ledger = new_ledger(pod("p", "a"))
    assert ledger.listed((pod("q", "a"),), 10, KUBELET) == (
        Released(RESOURCE, "a", holder("p"), is_free=False),
        Allocated(RESOURCE, "a", holder("q")),
    )
    assert ledger.held_ids(RESOURCE) == {"a"}


def test_of_several_holders_that_go_at_once_the_last_one_frees() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"), pod("q", "a"))
    assert ledger.doubly_held() == {(RESOURCE, "a")}
    ledger.listed((OTHER,), 10, KUBELET)
    assert ledger.listed((OTHER,), 20, KUBELET) == (
        Released(RESOURCE, "a", holder("p"), is_free=False),
        Released(RESOURCE, "a", holder("q")),
    )
    assert ledger.doubly_held() == set()


def test_two_containers_of_one_pod_do_not_hold_doubly() -> None:
    ledger = new_ledger(pod("p", "a"), pod("p", "a", container="d"))
    assert ledger.holders_of(RESOURCE, "a") == (holder("p"), holder("p", "d"))
    assert ledger.doubly_held() == set()


# ── what was given out and is not listed ──────────────────────────────────────────────────────────


def test_an_answer_that_was_asked_for_before_says_nothing_of_what_we_gave_out() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    ledger.listed((OTHER,), 10, KUBELET)
    ledger.allocated(RESOURCE, ["a"], 20.5)
    assert ledger.listed((OTHER,), 20, KUBELET) == ()
    assert ledger.listed((OTHER,), 20.5, KUBELET) == ()
    assert ledger.listed((OTHER,), 31, KUBELET) == ()


def test_what_neither_an_answer_nor_the_checkpoint_shows_is_free_after_the_grace() -> None:
    """As for a pod whose admission failed after our answer."""
    ledger = new_ledger(OTHER)
    ledger.allocated(RESOURCE, ["a"], 25)
    for asked_at in (26, 36, 44):
        assert ledger.listed((OTHER,), asked_at, KUBELET, (OTHER,)) == ()
    assert ledger.listed((OTHER,), 45, KUBELET, (OTHER,)) == (Released(RESOURCE, "a", None),)


def test_what_no_answer_shows_stays_in_use_where_the_checkpoint_cannot_be_read() -> None:
    ledger = new_ledger()
    ledger.allocated(RESOURCE, ["a"], 0)
    for asked_at in range(1, 10_000, 10):
        assert ledger.listed((OTHER,), asked_at, KUBELET) == ()


def test_a_device_given_out_again_before_its_release_is_in_use() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    ledger.listed((OTHER,), 30, KUBELET)
    ledger.allocated(RESOURCE, ["a"], 35)
    assert ledger.listed((OTHER,), 40, KUBELET) == ()
    assert ledger.listed((OTHER, pod("q", "a")), 50, KUBELET) == (
        Released(RESOURCE, "a", holder("p"), is_free=False),
        Allocated(RESOURCE, "a", holder("q")),
    )


def test_an_init_container_keeps_its_device_although_no_answer_shows_it() -> None:
    """The kubelet lists the pod and never the container (kubelet.md 7.2); its checkpoint names the device."""
    ledger = new_ledger(OTHER)
    ledger.allocated(RESOURCE, ["a"], 25)
    for asked_at in range(26, 1000, 10):
        assert ledger.listed((OTHER, pod("p")), asked_at, KUBELET, (OTHER, pod("uid", "a"))) == ()
        assert ledger.is_checkpoint_old == (asked_at >= 45)
    assert ledger.held_ids(RESOURCE) == {"a", "z"}
    assert ledger.listed((OTHER,), 1000, KUBELET, (OTHER,)) == ()
    assert ledger.listed((OTHER,), 1010, KUBELET, (OTHER,)) == (Released(RESOURCE, "a", None),)


def test_an_answer_that_was_asked_for_before_does_not_end_the_grace() -> None:
    """It shows the holder before, whose pod has just ended."""
    ledger = new_ledger(OTHER, pod("p", "a"))
    ledger.allocated(RESOURCE, ["a"], 25)
    ledger.listed((OTHER, pod("p", "a")), 24, KUBELET)
    for asked_at in (26, 36, 44):
        assert ledger.listed((OTHER,), asked_at, KUBELET, (OTHER,)) == ()
    assert ledger.listed((OTHER,), 45, KUBELET, (OTHER,)) == (Released(RESOURCE, "a", holder("p")),)


# ── another kubelet ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("checkpoint", [None, (STATIC, OTHER, pod("uid", "a"))])
def test_a_new_kubelet_that_lists_static_pods_frees_nothing_however_long_the_api_server_is_away(
    checkpoint: tuple[PodResources, ...] | None,
) -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    for asked_at in range(10, 10_000, 10):
        changes = ledger.listed((STATIC,), asked_at, NEXT_KUBELET, checkpoint)
        assert not any(isinstance(change, Released) for change in changes)
        assert ledger.holders_of(RESOURCE, "a") == ()
    assert ledger.listed((OTHER, pod("p", "a")), 10_000, NEXT_KUBELET) == ()
    assert ledger.holders_of(RESOURCE, "a") == (holder("p"),)


def test_a_new_kubelet_frees_what_it_has_never_listed_once_its_checkpoint_names_it_no_more() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    assert ledger.needs_checkpoint((OTHER,), NEXT_KUBELET)
    old = (OTHER, pod("uid", "a"))
    assert (ledger.listed((OTHER,), 10, NEXT_KUBELET, old), ledger.is_checkpoint_old) == ((), True)
    assert (ledger.listed((OTHER,), 20, NEXT_KUBELET, (OTHER,)), ledger.is_checkpoint_old) == ((), False)
    assert ledger.listed((OTHER,), 30, NEXT_KUBELET, (OTHER,)) == (Released(RESOURCE, "a", holder("p")),)
    assert not ledger.needs_checkpoint((OTHER,), NEXT_KUBELET)


def test_the_checkpoint_is_not_asked_for_what_the_kubelet_has_listed_itself() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    assert not ledger.needs_checkpoint((OTHER,), KUBELET)
    assert not ledger.needs_checkpoint((OTHER, pod("p", "a")), NEXT_KUBELET)


def test_the_two_answers_are_of_one_kubelet() -> None:
    ledger = new_ledger(OTHER, pod("p", "a"))
    ledger.listed((OTHER,), 10, KUBELET)
    assert ledger.listed((OTHER,), 20, NEXT_KUBELET, (OTHER,)) == ()
    assert ledger.listed((OTHER,), 30, NEXT_KUBELET, (OTHER,)) == (Released(RESOURCE, "a", holder("p")),)


def test_a_kubelet_that_lost_its_books_frees_nothing_of_a_pod_that_it_lists() -> None:
    """It lists the pod without its device, and its new checkpoint does not name the device."""
    ledger = new_ledger(OTHER, pod("p", "a"))
    for asked_at in range(10, 200, 10):
        assert ledger.listed((OTHER, pod("p")), asked_at, NEXT_KUBELET, (OTHER,)) == ()


def test_a_new_pod_of_the_same_name_keeps_no_device_of_the_old_one() -> None:
    """The checkpoint of the new kubelet named the device: the kubelet has its books."""
    ledger = new_ledger(OTHER, pod("p", "a"))
    ledger.listed((OTHER,), 10, NEXT_KUBELET, (OTHER, pod("uid", "a")))
    assert ledger.last_holders(RESOURCE, "a") == ((holder("p"),), True)
    ledger.listed((OTHER, pod("p")), 20, NEXT_KUBELET, (OTHER,))
    assert ledger.listed((OTHER, pod("p")), 30, NEXT_KUBELET, (OTHER,)) == (
        Released(RESOURCE, "a", holder("p")),
    )


# ── a restart of ours ─────────────────────────────────────────────────────────────────────────────


def test_what_was_held_before_a_restart_is_in_use_after_it() -> None:
    ledger = new_ledger(pod("p", "a"))
    ledger.allocated(RESOURCE, ["b"], 1)
    ledger = restarted(ledger, 2)
    assert not ledger.is_known
    assert ledger.held_ids(RESOURCE) == {"a", "b"}
    assert ledger.holders_of(RESOURCE, "a") == ()
    ledger.listed((pod("p", "a"),), 3, KUBELET)
    assert ledger.holders_of(RESOURCE, "a") == (holder("p"),)


def test_a_release_while_we_were_down_is_noticed_once() -> None:
    ledger = new_ledger(pod("p", "a"))
    ledger = restarted(ledger, 500)
    assert ledger.listed((), 501, KUBELET) == ()
    assert ledger.listed((), 511, KUBELET) == (Released(RESOURCE, "a", holder("p")),)
    assert restarted(ledger, 600).memory(RESOURCE) == {}


def test_a_release_that_nobody_took_is_noticed_again_after_a_restart() -> None:
    ledger = new_ledger()
    ledger.keep_releases(RESOURCE)
    ledger.listed((pod("p", "a"),), 0, KUBELET)
    ledger.listed((), 10, KUBELET)
    ledger.listed((), 20, KUBELET)
    released = ledger.pending_releases(RESOURCE)
    assert released == [Released(RESOURCE, "a", holder("p"))]
    assert not ledger.may_be_held(RESOURCE, "a")
    ledger = restarted(ledger, 100)
    ledger.keep_releases(RESOURCE)
    ledger.listed((), 101, KUBELET)
    ledger.listed((), 111, KUBELET)
    assert ledger.pending_releases(RESOURCE) == released


# ── a resource that comes to us meanwhile ─────────────────────────────────────────────────────────


def test_what_another_program_gave_out_is_in_use_although_we_know_the_answers() -> None:
    ledger = new_ledger(OTHER)
    ledger.recall(RESOURCE, {"a": Remembered((holder("p"),), KUBELET)}, 5)
    assert ledger.may_be_held(RESOURCE, "a")
    assert ledger.listed((OTHER,), 10, KUBELET) == ()
    assert ledger.listed((OTHER,), 20, KUBELET) == (Released(RESOURCE, "a", holder("p")),)


def test_what_is_known_is_newer_than_what_is_remembered() -> None:
    ledger = new_ledger(pod("q", "a"))
    ledger.recall(RESOURCE, {"a": Remembered((holder("p"),), KUBELET)}, 5)
    assert ledger.holders_of(RESOURCE, "a") == (holder("q"),)


def test_an_allocate_of_another_program_is_newer_than_the_answers_before() -> None:
    """Its pod may hold the device in an init container, which no answer will show."""
    ledger = new_ledger(OTHER, pod("p", "a"))
    ledger.listed((OTHER, pod("q")), 10, KUBELET)
    ledger.recall(RESOURCE, {"a": Remembered()}, 11)
    for asked_at in range(20, 200, 10):
        assert ledger.listed((OTHER, pod("q")), asked_at, KUBELET, (OTHER, pod("uid", "a"))) == ()
    assert ledger.listed((OTHER,), 200, KUBELET, (OTHER,)) == ()
    assert ledger.listed((OTHER,), 210, KUBELET, (OTHER,)) == (Released(RESOURCE, "a", holder("p")),)


# ── what is cheap ─────────────────────────────────────────────────────────────────────────────────


def test_the_held_ids_are_made_only_when_they_change() -> None:
    ledger = new_ledger(pod("p", "a", "b"))
    before = ledger.held_ids(RESOURCE)
    ledger.listed((pod("q", "a", "b"), pod("r", "x", resource_name="example.com/other")), 10, KUBELET)
    ledger.allocated(RESOURCE, ["a"], 11)
    assert ledger.held_ids(RESOURCE) is before
    ledger.allocated(RESOURCE, ["c"], 12)
    assert ledger.held_ids(RESOURCE) == {"a", "b", "c"}


def test_a_memory_is_of_the_moment_at_which_it_was_asked_for() -> None:
    ledger = new_ledger()
    ledger.allocated(RESOURCE, ["a"], 0)
    later = ledger.memory_later(RESOURCE)
    ledger.allocated(RESOURCE, ["b"], 1)
    assert later().keys() == {"a"}


# ── taking releases ───────────────────────────────────────────────────────────────────────────────


def one_release(ledger: Ledger) -> Released:
    ledger.keep_releases(RESOURCE)
    ledger.listed((OTHER, pod("p", "a")), 0, KUBELET)
    ledger.listed((OTHER,), 10, KUBELET)
    ledger.listed((OTHER,), 20, KUBELET)
    (released,) = ledger.pending_releases(RESOURCE)
    return released


def test_releases_are_told_by_id_and_of_one_resource() -> None:
    ledger = new_ledger()
    for name in (RESOURCE, "example.com/other"):
        ledger.keep_releases(name)
    ledger.listed(
        (OTHER, pod("q", "c"), pod("p", "b", "a"), pod("r", "x", resource_name="example.com/other")),
        0,
        KUBELET,
    )
    for asked_at in (10, 20):
        ledger.listed((OTHER,), asked_at, KUBELET)
    assert [one.device_id for one in ledger.pending_releases(RESOURCE)] == ["a", "b", "c"]


def test_a_release_that_was_taken_is_gone() -> None:
    ledger = new_ledger()
    ledger.take([one_release(ledger)])
    assert ledger.pending_releases(RESOURCE) == []
    assert ledger.memory(RESOURCE).keys() == {"z"}


def test_a_device_that_is_given_out_again_is_not_offered_as_free() -> None:
    ledger = new_ledger()
    one_release(ledger)
    ledger.allocated(RESOURCE, ["a"], 21)
    assert ledger.pending_releases(RESOURCE) == []


def test_a_device_that_is_listed_again_is_not_offered_as_free() -> None:
    ledger = new_ledger()
    one_release(ledger)
    ledger.listed((OTHER, pod("q", "a")), 30, KUBELET)
    assert ledger.pending_releases(RESOURCE) == []


def test_taking_a_release_late_leaves_the_next_one_of_the_same_device() -> None:
    ledger = new_ledger()
    first = one_release(ledger)
    ledger.listed((OTHER, pod("p", "a")), 30, KUBELET)
    ledger.listed((OTHER,), 40, KUBELET)
    ledger.listed((OTHER,), 50, KUBELET)
    ledger.take([first])
    assert ledger.pending_releases(RESOURCE) == [first]


def test_releases_are_kept_only_where_somebody_takes_them() -> None:
    ledger = new_ledger()
    ledger.keep_releases("example.com/other")
    ledger.listed((OTHER, pod("p", "a")), 0, KUBELET)
    ledger.listed((OTHER,), 10, KUBELET)
    assert ledger.listed((OTHER,), 20, KUBELET) == (Released(RESOURCE, "a", holder("p")),)
    assert ledger.pending_releases(RESOURCE) == []
    assert ledger.memory(RESOURCE).keys() == {"z"}


# ── more than is kept ─────────────────────────────────────────────────────────────────────────────

MANY = pod("many", *(f"{number:06}" for number in range(KEPT_LIMIT + 5)))


def test_ids_that_we_did_not_allocate_are_kept_up_to_a_limit() -> None:
    ledger = new_ledger(MANY)
    assert (len(ledger.held_ids(RESOURCE)), ledger.is_over) == (KEPT_LIMIT, True)
    ledger.recall(RESOURCE, {f"r{number}": Remembered() for number in range(5)}, 1)
    assert len(ledger.held_ids(RESOURCE)) == KEPT_LIMIT


def test_what_we_allocated_is_kept_beyond_the_limit() -> None:
    ledger = new_ledger(MANY)
    ledger.allocated(RESOURCE, ["ours"], 1, {"ours": Use("ours")})
    assert ledger.is_held(RESOURCE, "ours")
    ledger.listed((MANY, pod("p", "ours")), 2, KUBELET)
    assert ledger.holders_of(RESOURCE, "ours") == (holder("p"),)
    written = ledger.memory(RESOURCE)
    again = new_ledger(MANY)
    again.recall(RESOURCE, written, 3)
    assert again.is_held(RESOURCE, "ours")


def test_resources_of_others_take_no_place_of_known_ones() -> None:
    ledger = new_ledger()
    ledger.recall(RESOURCE, {"a": Remembered()}, 0)
    strangers = tuple(pod("s", f"{number}", resource_name=f"a/{number}") for number in range(KEPT_LIMIT + 5))
    ledger.listed((*strangers, pod("p", "a", "b")), 1, KUBELET)
    assert ledger.held_ids(RESOURCE) == {"a", "b"}
    assert ledger.is_over
    ledger.listed((pod("p", "a", "b"),), 2, KUBELET)
    assert not ledger.is_over


def test_one_id_of_very_many_pods_takes_no_time() -> None:
    """Sorted at each listing, it would take minutes."""
    ledger = new_ledger()
    ledger.recall(RESOURCE, {"a": Remembered()}, 0)
    ledger.listed([pod(f"p{number:05}", "a") for number in range(20_000)], 1, KUBELET)
    assert len(ledger.holders_of(RESOURCE, "a")) == 20_000


def test_ids_that_no_list_can_have_are_left_out() -> None:
    strange = ["a b", "a/b:c,d", "\xfc", "x" * 253]
    ledger = new_ledger(pod("p", *strange, "", "x" * 254, "\xfc" * 127, "\ud800"))
    assert ledger.held_ids(RESOURCE) == set(strange)
    assert ledger.is_over
    again = new_ledger()
    again.recall(RESOURCE, {"\ud800": Remembered(), "a b": Remembered()}, 1)
    assert again.held_ids(RESOURCE) == {"a b"}
