"""Scores: what the real scheduler's tables and formulas say; and ceilings that no score is above."""

from __future__ import annotations

from random import Random

import pytest

from devplug.sandbox.scheduler.filters import preferred_weight, static_refusal
from devplug.sandbox.scheduler.groups import NO_ROOM, Family, NodeGroup, Rating, Usage
from devplug.sandbox.scheduler.scores import (
    ScoringSettings,
    Strategy,
    balance,
    balance_gain,
    normalised_affinity,
    normalised_taints,
    scorer_of,
)
from devplug.sandbox.scheduler.search import BucketKey, allowance, ceiling
from devplug.sandbox.scheduler.snapshot import ClusterSnapshot
from devplug.sandbox.scheduler.types import (
    CPU,
    MEMORY,
    NAME_FIELD,
    PODS,
    PREFER_NO_SCHEDULE,
    Node,
    Preference,
    Requirement,
    Shape,
    Taint,
    Term,
    Toleration,
)
from tests.sandbox.scheduler.beds import GIB, GPU, some_node, some_settings, some_shape

LEAST, MOST, RATIO = Strategy


@pytest.mark.parametrize(
    ("strategy", "used", "score"),
    [
        (LEAST, (3000, 5000), 37),  # (4000-3000)/4000 = 25, (10000-5000)/10000 = 50
        (LEAST, (5000, 0), 50),  # more than there is: 0, 100
        (MOST, (3000, 5000), 62),  # 75, 50
        (MOST, (5000, 0), 50),
        (RATIO, (3000, 5000), 63),  # 62.5 is rounded
        (RATIO, (3000, 0), 75),  # what scores 0 does not count
    ],
)
def test_strategies_score_as_the_real_ones(strategy: Strategy, used: tuple[int, int], score: int) -> None:
    score_of = scorer_of(ScoringSettings(strategy=strategy))
    assert score_of((1, 1), (0, 0), used, (4000, 10000)) == score
    assert score_of((1, 1), used, (0, 0), (4000, 10000)) == score


@pytest.mark.parametrize("strategy", Strategy)
def test_what_nothing_is_allocatable_of_does_not_count(strategy: Strategy) -> None:
    score_of = scorer_of(ScoringSettings(strategy=strategy))
    assert score_of((1, 7), (0, 5), (50, 0), (100, 0)) == 50
    assert score_of((1, 0), (0, 5), (50, 0), (100, 10)) == 50
    assert score_of((1,), (1,), (1,), (0,)) == 0


def test_points_that_fall_are_rounded_towards_zero_as_in_go() -> None:
    score_of = scorer_of(ScoringSettings(strategy=RATIO, points=((0, 10), (30, 3), (60, 5))))
    scores = [score_of((1,), (use,), (0,), (100,)) for use in (0, 1, 30, 31, 60, 61, 200)]
    assert scores == [100, 98, 30, 30, 50, 50, 50]  # 100 - 70/30 = 97.67: the part of 2.33 is cut off


def test_balance_is_best_where_parts_are_equal() -> None:
    assert balance((0, 0), (50, 500), (100, 1000)) == 100
    assert balance((50, 0), (0, 0), (100, 1000)) == 75
    assert balance((500, 0), (0, 0), (100, 1000)) == 50
    assert balance((50,), (0,), (100,)) == 100
    assert balance((1, 2, 3), (0, 0, 0), (10, 10, 10)) == 91
    assert (balance_gain(100, 75), balance_gain(75, 75), balance_gain(74, 75)) == (87, 75, 74)


def test_taints_and_preferences_count_in_proportion_to_the_most() -> None:
    assert [normalised_taints(count, 3) for count in range(4)] == [300, 201, 102, 0]
    assert normalised_taints(0, 0) == 300
    assert [normalised_affinity(weight, 30) for weight in (0, 10, 30)] == [0, 66, 200]
    assert normalised_affinity(0, 0) == 0


def test_a_toleration_takes_away_what_counts_against_a_node() -> None:
    cluster = ClusterSnapshot()
    for name, taints in [("a", (Taint("old", "", PREFER_NO_SCHEDULE),)), ("b", ())]:
        cluster.put_node(Node(name, {}, taints, allocatable={CPU: 8000 if name == "a" else 4000, PODS: 9}))
    assert cluster.choose(Shape.asking({CPU: 1000})) == "b"
    assert cluster.choose(Shape.asking({CPU: 1000}, tolerations=(Toleration("old", "Exists"),))) == "a"


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (Requirement("zone", "In", ("a", "b")), True),
        (Requirement("zone", "In", ("b",)), False),
        (Requirement("none", "In", ("a",)), False),
        (Requirement("zone", "NotIn", ("a",)), False),
        (Requirement("none", "NotIn", ("a",)), True),
        (Requirement("zone", "Exists"), True),
        (Requirement("none", "Exists"), False),
        (Requirement("zone", "DoesNotExist"), False),
        (Requirement("none", "DoesNotExist"), True),
        (Requirement("age", "Gt", ("6",)), True),
        (Requirement("age", "Gt", ("7",)), False),
        (Requirement("age", "Lt", ("8",)), True),
        (Requirement("age", "Lt", ("7",)), False),
        (Requirement("zone", "Lt", ("7",)), False),
        (Requirement("age", "Lt", ("7", "8")), False),
        (Requirement("age", "Lt", ("9_0",)), False),
        (Requirement("age", "Lt", (str(2**63),)), False),
        (Requirement("age", "Like", ("7",)), False),
    ],
)
def test_operators_match_labels_as_in_the_api(requirement: Requirement, *, matches: bool) -> None:
    node = Node("one", {"zone": "a", "age": "7"})
    shape = Shape.asking(
        {}, required=(Term((requirement,)),), preferred=(Preference(5, Term((requirement,))),)
    )
    assert (static_refusal(shape, node) is None) is matches
    assert preferred_weight(shape, node) == (5 if matches else 0)


def test_terms_are_alternatives_and_one_without_conditions_is_none() -> None:
    node = Node("one", {"zone": "a"})
    here, there = Requirement("zone", "In", ("a",)), Requirement("zone", "In", ("b",))
    assert static_refusal(Shape.asking({}, required=(Term((there,)), Term((here,)))), node) is None
    for terms in [(), (Term(),), (Term((here, there)),)]:
        assert static_refusal(Shape.asking({}, required=terms), node) is not None
    for operator, values, is_allowed in [
        ("In", ("one",), True),
        ("NotIn", ("one",), False),
        ("Exists", (), False),
    ]:
        term = Term(fields=(Requirement(NAME_FIELD, operator, values),))
        assert (static_refusal(Shape.asking({}, required=(term,)), node) is None) is is_allowed


def test_equal_nodes_are_chosen_by_the_seed_alone() -> None:
    def chosen(seed: int, order: list[int]) -> str | None:
        cluster = ClusterSnapshot(seed=seed)
        for number in order:
            cluster.put_node(Node(f"node-{number}", allocatable={CPU: 1000, PODS: 9}))
        return cluster.choose(Shape())

    assert chosen(1, list(range(20))) == chosen(1, list(reversed(range(20))))
    assert len({chosen(seed, list(range(20))) for seed in range(20)}) > 5


def test_a_label_that_every_node_has_another_of_is_matched_all_the_same() -> None:
    cluster = ClusterSnapshot()
    for number in range(200):
        cluster.put_node(Node(f"node-{number}", {"host": f"h{number}"}, allocatable={CPU: 1000, PODS: 1}))
    last = Shape.asking({CPU: 100}, node_selector={"host": "h199"})
    assert cluster.choose(last) == "node-199"
    cluster.assume("a", last, "node-199")
    assert cluster.choose(last) is None
    assert (
        cluster.diagnose(last)
        .message()
        .startswith(
            "0/200 nodes are available: 1 Too many pods, 199 node(s) didn't match Pod's node affinity"
        )
    )
    cluster.forget("a")
    assert cluster.choose(last) == "node-199"
    cluster.put_node(Node("node-0", {"host": "h199"}, allocatable={CPU: 5000, PODS: 1}))
    assert cluster.choose(last) == "node-0"


def test_devices_that_become_free_are_given_again() -> None:
    cluster = ClusterSnapshot(ScoringSettings(resources=((CPU, 1), (MEMORY, 1), (GPU, 5))))
    cluster.put_node(Node("one", allocatable={CPU: 1000, MEMORY: GIB, PODS: 9, GPU: 1}))
    shape = Shape.asking({GPU: 1})
    assert cluster.choose(shape) == "one"
    cluster.assume("a", shape, "one")
    assert (cluster.choose(shape), cluster.node_of("a")) == (None, "one")
    cluster.assume("a", shape, "elsewhere")
    assert (cluster.choose(shape), cluster.node_of("a"), cluster.usage("one")) == (
        "one",
        "elsewhere",
        Usage(),
    )
    cluster.put_node(Node("elsewhere", allocatable={CPU: 1000, MEMORY: GIB, PODS: 9, GPU: 1}))
    cluster.remove_node("one")
    assert (cluster.choose(shape), list(cluster.nodes)) == (None, ["elsewhere"])


@pytest.mark.parametrize("part", range(4))
def test_no_score_is_above_what_the_search_takes_for_the_most(part: int) -> None:
    rng = Random(part)
    rated = 0
    for _ in range(4000):
        settings, node, shape = some_settings(rng), some_node(rng, 0), some_shape(rng, 1)
        usage = Usage()
        for _ in range(rng.randrange(4)):
            usage = usage.plus(some_shape(rng, 1))
        group = NodeGroup(0, 0, Family(0, node), node.allocatable, usage, settings)
        rating = Rating.of(shape, settings)
        score = rating.rate(settings)(group)
        if score != NO_ROOM:
            rated += 1
            most = ceiling(settings, rating.weights, group)
            most += allowance(settings, rating, BucketKey.of(settings, group))
            assert score <= most + 1e-6
    assert rated > 500


def test_the_default_that_is_written_out_is_the_rule_for_all() -> None:
    rng = Random(7)
    written_out, general = ScoringSettings(), ScoringSettings(resources=((MEMORY, 1), (CPU, 1)))
    rated = 0
    for _ in range(3000):
        node, shape, usage = some_node(rng, 0), some_shape(rng, 1), Usage()
        for _ in range(rng.randrange(6)):
            usage = usage.plus(some_shape(rng, 1))
        scores = {
            Rating.of(shape, settings).rate(settings)(
                NodeGroup(0, 0, Family(0, node), node.allocatable, usage, settings)
            )
            for settings in (written_out, general)
        }
        assert len(scores) == 1
        rated += scores != {NO_ROOM}
    assert rated > 500
