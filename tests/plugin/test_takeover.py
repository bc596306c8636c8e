"""What tells of another plugin of a name, sign by sign, and what does not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.plugin.takeover import (
    LASTS_SECONDS,
    NEVER_COMPARED,
    Comparison,
    Listed,
    Seen,
    Sign,
    given_is_proof,
    suspicion_of,
)

OURS = Listed(frozenset({"a", "b"}), frozenset({"a", "b"}))


def compared(*answers: tuple[float, set[str]], ours: Listed = OURS) -> Comparison:
    """The comparison after answers that were asked for at these times."""
    comparison = NEVER_COMPARED
    for asked_at, told in answers:
        comparison = comparison.answered(asked_at, ours, ours, told)
    return comparison


def signs(seen: Seen) -> tuple[Sign, ...]:
    suspicion = suspicion_of(seen)
    return () if suspicion is None else suspicion.signs


# ── the kubelet's list ──


def test_a_kubelet_that_lists_what_we_list_leaves_no_doubt() -> None:
    comparison = compared((1, {"a", "b"}), (9, {"a", "b"}))
    assert (comparison.confirmed, comparison.is_abandoned) == (frozenset(), False)
    assert not comparison.is_in_doubt
    assert signs(Seen(9, comparison)) == ()


def test_a_stranger_in_two_answers_is_certain_and_in_one_is_a_doubt() -> None:
    first = compared((1, {"a", "x"}))
    assert (first.confirmed, first.is_in_doubt) == (frozenset(), True)
    second = compared((1, {"a", "x"}), (2.9, {"x"}))
    assert (second.confirmed, second.is_in_doubt) == (frozenset(), True)
    third = compared((1, {"a", "x"}), (2.9, {"x"}), (3, {"x"}))
    assert (third.confirmed, third.is_in_doubt) == (frozenset({"x"}), False)
    assert signs(Seen(3, third)) == (Sign.LISTED,)


def test_a_stranger_that_is_gone_in_the_next_answer_was_a_list_on_its_way() -> None:
    comparison = compared((1, {"a", "x"}), (3, {"a", "b"}), (5, {"a", "x"}))
    assert comparison.confirmed == set()


def test_another_stranger_in_the_next_answer_begins_anew() -> None:
    """Devices that come and go on our side look like that for a moment each."""
    comparison = compared((1, {"x"}), (3, {"y"}), (4.9, {"y"}))
    assert comparison.confirmed == set()
    assert comparison.answered(5, OURS, OURS, {"y"}).confirmed == {"y"}


def test_what_we_listed_before_the_answer_or_list_after_it_is_no_stranger() -> None:
    before, after = Listed(frozenset({"a"})), Listed(frozenset({"b"}))
    comparison = NEVER_COMPARED
    for asked_at in (1, 5, 9):
        comparison = comparison.answered(asked_at, before, after, {"a", "b"})
    assert comparison.confirmed == set()


def test_an_unhealthy_device_that_the_kubelet_has_as_healthy_is_late_and_not_strange() -> None:
    ill = Listed(frozenset({"a", "b"}), frozenset({"b"}))
    assert compared((1, {"a", "b"}), (5, {"a", "b"}), ours=ill).confirmed == set()


def test_a_kubelet_that_has_nothing_of_ours_for_five_seconds_has_forgotten_us() -> None:
    knows = (0, {"a"})
    assert not compared(knows, (1, set())).is_abandoned
    assert compared(knows, (1, set())).is_in_doubt
    assert not compared(knows, (1, set()), (5.9, set())).is_abandoned
    forgotten = compared(knows, (1, set()), (3, set()), (6, set()))
    assert (forgotten.is_abandoned, forgotten.is_in_doubt) == (True, False)
    assert not compared(knows, (1, set()), (3, {"a"}), (6, set())).is_abandoned
    assert compared(knows).anew().answered(1, OURS, OURS, set()).is_vacant


def test_a_kubelet_that_never_listed_anything_has_forgotten_us_before_it_was_asked() -> None:
    """The end of our predecessor's stream may mark our devices a moment after it has read them (1.36)."""
    assert compared((1, set()), (6, set())).is_abandoned


def test_a_kubelet_that_lists_others_has_not_forgotten_us_but_was_told_otherwise() -> None:
    assert not compared((1, {"x"}), (9, {"x"})).is_abandoned


@pytest.mark.parametrize("ours", [Listed(), Listed(frozenset({"a"}))], ids=["no devices", "none healthy"])
def test_a_kubelet_has_nothing_where_we_have_nothing_to_give(ours: Listed) -> None:
    known = compared((0, {"a"}))
    comparison = known.answered(1, ours, ours, set()).answered(9, ours, ours, set())
    assert (comparison.is_abandoned, comparison.is_in_doubt) == (False, False)


@given(
    st.lists(st.sets(st.sampled_from("abxy")), max_size=6), st.frozensets(st.sampled_from("ab"), min_size=1)
)
def test_nothing_that_we_list_is_ever_a_stranger(answers: list[set[str]], ids: frozenset[str]) -> None:
    ours = Listed(ids, ids)
    comparison = compared(*((10.0 * at, told) for at, told in enumerate(answers)), ours=ours)
    assert comparison.confirmed.isdisjoint(ids)
    assert comparison.confirmed <= (answers[-1] if answers else set())


def test_a_name_that_is_ours_again_is_told_of_for_ten_minutes_more_and_is_not_lost() -> None:
    """Or a takeover between two scrapes would never be seen."""
    over = compared((1, {"x"}), (4, {"x"}), (7, {"a"}))
    for comparison in (over, over.anew()):
        suspicion = suspicion_of(Seen(4 + LASTS_SECONDS, comparison))
        assert suspicion is not None
        assert (suspicion.signs, suspicion.device_ids, suspicion.is_lost) == ((Sign.LISTED,), ("x",), False)
        assert 'the kubelet listed "x" under this name' in suspicion.reason
        assert suspicion_of(Seen(5 + LASTS_SECONDS, comparison)) is None


# ── streams, calls, holders ──


@pytest.mark.parametrize(
    ("cuts", "now", "is_sign"),
    [
        ((10.0, 20.0, 30.0), 30.0, True),
        ((10.0, 20.0, 30.0), 30.0 + LASTS_SECONDS, True),
        ((10.0, 20.0, 30.0), 31.0 + LASTS_SECONDS, False),
        ((20.0, 30.0), 30.0, False),
        ((10.0, 20.0, 11.0 + LASTS_SECONDS), 11.0 + LASTS_SECONDS, False),
        ((1.0, 710.0, 720.0, 730.0), 730.0, True),
        ((), 0.0, False),
    ],
    ids=["three", "ten minutes ago", "longer ago", "two", "far apart", "the last three", "none"],
)
def test_three_lost_streams_are_a_sign_and_two_are_a_kubelet_of_1_36(
    cuts: tuple[float, ...], now: float, *, is_sign: bool
) -> None:
    assert signs(Seen(now, cuts=cuts)) == ((Sign.CUT,) if is_sign else ())


def test_two_calls_for_strange_devices_are_a_sign_and_one_may_be_late() -> None:
    assert signs(Seen(10, strange_calls=(9,))) == ()
    assert signs(Seen(10, strange_calls=(8, 9))) == (Sign.ASKED,)
    assert signs(Seen(10 + LASTS_SECONDS, strange_calls=(8, 9))) == ()


def test_a_device_that_somebody_else_gave_out_is_a_sign_until_ten_minutes_after_its_release() -> None:
    assert signs(Seen(9000, given={"a": math.inf})) == (Sign.GIVEN,)
    assert signs(Seen(100 + LASTS_SECONDS, given={"a": 100})) == (Sign.GIVEN,)
    assert signs(Seen(101 + LASTS_SECONDS, given={"a": 100})) == ()


def test_a_device_held_without_our_allocate_proves_nothing_in_the_first_five_minutes() -> None:
    """A kubelet that has just started lists pods of the day before late."""
    assert not given_is_proof(1000, None)
    assert not given_is_proof(1000, 701)
    assert given_is_proof(1000, 700)


# ── what is said of it ──


def test_a_suspicion_names_the_signs_the_devices_and_what_was_seen() -> None:
    comparison = compared((1, {"g1", "g2", "g3", "g4"}), (4, {"g1", "g2", "g3", "g4"}))
    suspicion = suspicion_of(Seen(4, comparison, {"a": math.inf}, (3, 4), (1, 2, 3)))
    assert suspicion is not None
    assert suspicion.signs == (Sign.LISTED, Sign.GIVEN, Sign.ASKED, Sign.CUT)
    assert suspicion.device_ids == ("g1", "g2", "g3", "g4", "a")
    assert suspicion.is_lost
    assert suspicion.reason == (
        'another plugin registers this name: the kubelet lists "g1", "g2" and 2 more under this name, '
        'which this plugin never listed; "a" is held, and this plugin was not asked to allocate it; '
        "the kubelet asks this plugin for devices that it never listed; "
        "the kubelet ends this plugin's stream again and again"
    )


@pytest.mark.parametrize(
    "seen",
    [Seen(1, given={"a": math.inf, "b": math.inf}), Seen(1, strange_calls=(0, 1)), Seen(1, cuts=(0, 0, 1))],
    ids=["given", "asked", "cut"],
)
def test_a_name_is_lost_only_if_the_kubelets_list_is_another_ones(seen: Seen) -> None:
    suspicion = suspicion_of(seen)
    assert suspicion is not None
    assert not suspicion.is_lost


def test_no_more_than_twenty_devices_are_named() -> None:
    many = {f"x{number:03}" for number in range(500)}
    suspicion = suspicion_of(Seen(4, compared((1, many), (4, many))))
    assert suspicion is not None
    assert suspicion.device_ids == tuple(sorted(many)[:20])
    assert len(suspicion.reason) < 200
