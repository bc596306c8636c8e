"""How hints become one place: merging against a naive enumeration, the policies, the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.errors import KubeletCrashError, KubeletError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import (
    NO_AFFINITY,
    Hints,
    NodeHardware,
    NumaNode,
    Policy,
    Provider,
    Scope,
    TopologyHint,
    TopologyRules,
    TopologySettings,
    mask_of,
    nodes_of,
)

CLOSEST = "prefer-closest-numa-nodes"
LIMIT = "max-allowable-numa-nodes"
NO_INTEGER = f'unable to convert policy option to integer "{LIMIT}": strconv.Atoi: parsing'
PLACING = [Policy.BEST_EFFORT, Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE]

NO_OPTIONS: Mapping[str, str] = {}


def machine(*node_ids: int) -> NodeHardware:
    """A machine whose nodes are as far apart as their numbers."""
    return NodeHardware(
        tuple(NumaNode(one, tuple(10 + 10 * abs(one - other) for other in node_ids)) for one in node_ids)
    )


def rules(
    policy: Policy, *node_ids: int, options: Mapping[str, str] = NO_OPTIONS, compat: bool = True
) -> TopologyRules:
    settings = TopologySettings(policy, Scope.CONTAINER, options)
    return TopologyRules.of(settings, machine(*node_ids), compat=compat)


def hint(*nodes: int, is_preferred: bool = True) -> TopologyHint:
    """A hint with these nodes; without any, one that has no opinion."""
    return TopologyHint(mask_of(nodes) if nodes else None, is_preferred)


def rather_not(*nodes: int) -> TopologyHint:
    return hint(*nodes, is_preferred=False)


# ── the specification: every combination, compared by the text of kubelet.md 6.4 ──────────────────

Place = tuple[frozenset[int], bool]
"""NUMA nodes, and whether they are preferred."""


def flat(providers: Sequence[Provider]) -> list[Sequence[TopologyHint]]:
    """One list of hints per resource, or for a provider without any."""
    lists: list[Sequence[TopologyHint]] = []
    for provider in providers:
        if not provider:
            lists.append([hint()])
        lists.extend([hint()] if hints is None else hints or [rather_not()] for hints in provider.values())
    return lists


def average_distance(nodes: frozenset[int], of: NodeHardware) -> float:
    places = {node.id: place for place, node in enumerate(of.numa_nodes)}
    rows = {node.id: node.distances or () for node in of.numa_nodes}
    pairs = [rows[one][places[other]] for one in nodes for other in nodes]
    return sum(pairs) / len(pairs)


def better_of(one: Place, other: Place, of: NodeHardware, *, is_closest: bool) -> Place:
    """Fewer nodes; if that is asked for, nearer ones; then lower ones."""

    def rank(place: Place) -> tuple[int, float, int]:
        nodes = place[0]
        return (len(nodes), average_distance(nodes, of) if is_closest else 0, sum(2**node for node in nodes))

    return other if rank(other) < rank(one) else one


def chosen_of(
    current: Place | None, candidate: Place, aim: int, of: NodeHardware, *, is_closest: bool
) -> Place:
    if current is None:
        return candidate
    if current[1] != candidate[1]:
        return candidate if candidate[1] else current
    size, wanted = len(current[0]), len(candidate[0])
    if current[1] or size > aim:
        return better_of(current, candidate, of, is_closest=is_closest)
    if size == aim:
        return better_of(current, candidate, of, is_closest=is_closest) if wanted == aim else current
    if wanted > aim:
        return current
    if wanted == size:
        return better_of(current, candidate, of, is_closest=is_closest)
    return candidate if wanted > size else current


def naive_merge(
    by: TopologyRules, of: NodeHardware, providers: Sequence[Provider]
) -> tuple[TopologyHint, bool]:
    """Visit every combination of one hint for each resource, as the real kubelet does."""
    if by.policy is Policy.NONE:
        return NO_AFFINITY, True
    lists = flat(providers)
    is_single = by.policy is Policy.SINGLE_NUMA_NODE
    if is_single:
        lists = [
            [one for one in hints if one.is_preferred and (one.mask is None or len(nodes_of(one.mask)) == 1)]
            for hints in lists
        ]
    sizes = [
        min((len(nodes_of(one.mask)) for one in hints if one.mask is not None), default=0) for hints in lists
    ]
    everything = frozenset(node.id for node in of.numa_nodes)
    best: Place | None = None
    for combination in product(*lists):
        given_nodes = [frozenset(nodes_of(one.mask)) for one in combination if one.mask is not None]
        is_preferred = all(one.is_preferred for one in combination) and len(set(given_nodes)) <= 1
        if nodes := everything.intersection(*given_nodes):
            best = chosen_of(
                best,
                (nodes, is_preferred),
                max(sizes, default=0),
                of,
                is_closest=by.prefers_closest and not is_single,
            )
    nodes, is_preferred = best or (everything, False)
    is_anywhere = is_single and nodes == everything
    merged = TopologyHint(None if is_anywhere else mask_of(nodes), is_preferred)
    return merged, is_preferred or by.policy is Policy.BEST_EFFORT


masks = st.none() | st.sets(st.integers(0, 4), min_size=1).map(mask_of)
hint_lists = st.none() | st.lists(st.builds(TopologyHint, masks, st.booleans()), max_size=5)
providers_of_hints = st.lists(st.dictionaries(st.sampled_from("abc"), hint_lists, max_size=2), max_size=3)


@st.composite
def machines(draw: st.DrawFn) -> NodeHardware:
    """Up to four nodes, numbers missing, at any distances from each other."""
    ids = sorted(draw(st.sets(st.integers(0, 4), min_size=1, max_size=4)))
    between = {
        frozenset((one, other)): draw(st.sampled_from([11, 12, 20, 30])) for one in ids for other in ids
    }
    return NodeHardware(
        tuple(
            NumaNode(one, tuple(10 if one == other else between[frozenset((one, other))] for other in ids))
            for one in ids
        )
    )


@given(machines(), st.sampled_from(list(Policy)), st.booleans(), providers_of_hints)
def test_merging_finds_what_going_through_all_combinations_finds(
    of: NodeHardware, policy: Policy, is_closest: bool, providers: list[dict[str, Hints]]
) -> None:
    settings = TopologySettings(policy, Scope.CONTAINER, {CLOSEST: str(is_closest)})
    by = TopologyRules.of(settings, of, compat=False)
    assert by.merge(providers) == naive_merge(by, of, providers)


@given(providers_of_hints, st.sampled_from(PLACING))
def test_a_provider_without_wishes_changes_nothing(providers: list[dict[str, Hints]], policy: Policy) -> None:
    by = rules(policy, 0, 1, 2)
    assert by.merge([*providers, {}]) == by.merge([*providers, {"x": None}]) == by.merge(providers)


@given(providers_of_hints, st.sampled_from(PLACING))
def test_who_is_not_preferred_is_admitted_by_best_effort_alone(
    providers: list[dict[str, Hints]], policy: Policy
) -> None:
    merged, is_admitted = rules(policy, 0, 1, 2).merge(providers)
    assert is_admitted is (merged.is_preferred or policy is Policy.BEST_EFFORT)


# ── merging, case by case ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("why", "hints", "merged"),
    [
        ("nobody cares", {"a": None}, hint(0, 1, 2, 3)),
        ("one says that it cannot be", {"a": (), "b": (hint(1),)}, rather_not(1)),
        ("all agree", {"a": (hint(0), hint(1)), "b": (hint(1),)}, hint(1)),
        ("lower nodes win among equals", {"a": (hint(1), hint(0))}, hint(0)),
        ("fewer nodes win", {"a": (hint(0, 1), hint(3))}, hint(3)),
        ("preferred wins over fewer", {"a": (rather_not(3), hint(0, 1))}, hint(0, 1)),
        ("equal masks are needed to be preferred", {"a": (hint(0),), "b": (hint(0, 1),)}, rather_not(0)),
        ("nothing in common", {"a": (hint(0),), "b": (hint(1),)}, rather_not(0, 1, 2, 3)),
        ("nodes that the machine lacks", {"a": (hint(5),)}, rather_not(0, 1, 2, 3)),
        (
            "the widest need sets the size where nothing is preferred",
            {"a": (rather_not(0), rather_not(0, 1)), "b": (rather_not(0, 1), rather_not(0, 1, 2))},
            rather_not(0, 1),
        ),
        (
            "as near to that size as can be, from below",
            {"a": (rather_not(0, 1, 2),), "b": (rather_not(3), rather_not(0, 1))},
            rather_not(0, 1),
        ),
    ],
)
def test_hints_are_merged(why: str, hints: dict[str, Hints], merged: TopologyHint) -> None:
    assert rules(Policy.BEST_EFFORT, 0, 1, 2, 3).merge([hints]) == (merged, True), why


def test_policy_none_looks_at_no_hint() -> None:
    """C85."""
    assert rules(Policy.NONE, 0, 1).merge([{"a": ()}]) == (NO_AFFINITY, True)
    assert NO_AFFINITY.mask is None


@pytest.mark.parametrize(
    ("hints", "merged"),
    [
        ({"a": None}, hint()),
        ({"a": (hint(1), hint(0, 1))}, hint(1)),
        ({"a": (hint(0, 1),)}, rather_not()),
        ({"a": (rather_not(0),)}, rather_not()),
        ({"a": (hint(0),), "b": (hint(1),)}, rather_not()),
        ({"a": (hint(0), hint(1)), "b": (hint(1), hint(0, 1))}, hint(1)),
    ],
)
def test_single_numa_node_looks_at_preferred_hints_with_one_node(
    hints: dict[str, Hints], merged: TopologyHint
) -> None:
    """C86, as far as the policy goes."""
    assert rules(Policy.SINGLE_NUMA_NODE, 0, 1).merge([hints]) == (merged, merged.is_preferred)


def test_the_only_node_of_a_machine_is_no_place_in_particular_to_single_numa_node() -> None:
    assert rules(Policy.SINGLE_NUMA_NODE, 0).merge([{"a": (hint(0),)}]) == (hint(), True)


# ── distances ─────────────────────────────────────────────────────────────────────────────────────


def test_among_equally_narrow_places_the_one_whose_mask_is_the_smaller_number_wins() -> None:
    """Nodes 1 and 2 (mask 6) come before 0 and 3 (mask 9), though 0 is the lowest of all."""
    by = rules(Policy.RESTRICTED, 0, 1, 2, 3)
    assert by.merge([{"a": (hint(0, 3), hint(1, 2))}]) == (hint(1, 2), True)


@pytest.mark.parametrize(("is_closest", "merged"), [("false", hint(0, 2)), ("true", hint(2, 3))])
def test_nearer_nodes_win_over_lower_ones_where_that_is_asked_for(
    is_closest: str, merged: TopologyHint
) -> None:
    by = rules(Policy.RESTRICTED, 0, 1, 2, 3, options={CLOSEST: is_closest})
    assert by.merge([{"a": (hint(0, 2), hint(2, 3))}]) == (merged, True)


def test_nearness_does_not_make_up_for_more_nodes() -> None:
    by = rules(Policy.RESTRICTED, 0, 1, 2, 3, options={CLOSEST: "true"})
    assert by.merge([{"a": (hint(0, 3), hint(1, 2, 3))}]) == (hint(0, 3), True)


def test_node_numbers_with_gaps_crash_the_kubelet_that_compares_distances() -> None:
    """1.36 takes the number of a node for its place in the row; where that is mended, nothing happens."""
    wishes = [{"a": (hint(0), hint(2))}]
    by = rules(Policy.BEST_EFFORT, 0, 2, options={CLOSEST: "true"})
    with pytest.raises(KubeletCrashError, match=r"index out of range \[2\] with length 2: the kubelet would"):
        by.merge(wishes)
    mended = rules(Policy.BEST_EFFORT, 0, 2, options={CLOSEST: "true"}, compat=False)
    assert mended.merge(wishes) == (hint(0), True)


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


def refusal(
    of: NodeHardware, policy: str, scope: str = "container", options: Mapping[str, str] = NO_OPTIONS
) -> str:
    with pytest.raises(KubeletError) as caught:
        TopologyRules.of(TopologySettings(policy, scope, options), of)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({LIMIT: "7"}, f'the minimum value of "{LIMIT}" should not be less than 8'),
        ({LIMIT: "-8"}, f'the minimum value of "{LIMIT}" should not be less than 8'),
        ({"prefer-nothing": "true"}, 'unknown Topology Manager Policy option: "prefer-nothing"'),
        ({'"': "true"}, 'unknown Topology Manager Policy option: "\\""'),
        ({LIMIT: "many"}, f'{NO_INTEGER} "many": invalid syntax'),
        ({LIMIT: "8 "}, f'{NO_INTEGER} "8 ": invalid syntax'),
        ({LIMIT: "9223372036854775808"}, f'{NO_INTEGER} "9223372036854775808": value out of range'),
        (
            {CLOSEST: "yes"},
            f'bad value for option "{CLOSEST}": strconv.ParseBool: parsing "yes": invalid syntax',
        ),
    ],
)
@pytest.mark.parametrize("policy", PLACING)
def test_an_option_that_cannot_be_ends_the_kubelet(
    policy: Policy, options: dict[str, str], text: str
) -> None:
    """C90."""
    assert refusal(machine(0), policy, options=options) == text


@pytest.mark.parametrize("option", [{LIMIT: "7"}, {"prefer-nothing": "true"}])
def test_a_kubelet_with_such_an_option_never_listens(short_dir: Path, option: dict[str, str]) -> None:
    """C90."""
    settings = KubeletSettings(topology=TopologySettings("restricted", options=option))
    with pytest.raises(KubeletError):
        Kubelet(short_dir / "device-plugins", settings)
    assert list(short_dir.iterdir()) == []


def test_other_settings_that_cannot_be_end_the_kubelet_too() -> None:
    assert refusal(machine(0), "strict") == 'unknown policy: "strict"'
    assert refusal(machine(0), "") == 'unknown policy: ""'
    assert refusal(machine(0), "restricted", "node") == 'unknown scope: "node"'
    assert refusal(machine(*range(9)), "restricted") == "unsupported on machines with more than 8 NUMA Nodes"
    assert (
        refusal(machine(*range(10)), "restricted", options={LIMIT: "9"})
        == "unsupported on machines with more than 9 NUMA Nodes"
    )
    assert refusal(NodeHardware((NumaNode(0),)), "best-effort", options={CLOSEST: "true"}) == (
        "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    )


def test_faults_are_told_in_the_order_of_the_real_kubelet() -> None:
    """Options come before distances, these before the machine's size, then policy and scope."""
    nine = NodeHardware(tuple(NumaNode(one) for one in range(9)))
    faults = [
        ({LIMIT: "7", CLOSEST: "true"}, "the minimum value of"),
        ({CLOSEST: "true"}, "cannot discover NUMA topology"),
        ({}, "unsupported on machines"),
        ({LIMIT: "9"}, "unknown policy"),
    ]
    for options, beginning in faults:
        assert refusal(nine, "strict", "node", options).startswith(beginning)


@pytest.mark.parametrize("text", ["8", "+8", "008", "64", "9223372036854775807"])
def test_as_many_nodes_are_taken_as_the_option_allows(text: str) -> None:
    """C90, from the other side."""
    assert rules(Policy.RESTRICTED, *range(8), options={LIMIT: text}).machine_mask == 0xFF


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_go_reads_these_words_as_true_and_no_others(text: str) -> None:
    assert rules(Policy.RESTRICTED, 0, options={CLOSEST: text}).prefers_closest


def test_under_policy_none_no_other_setting_is_looked_at() -> None:
    settings = TopologySettings("none", "nowhere", {"prefer-nothing": "maybe"})
    by = TopologyRules.of(settings, machine(*range(40)))
    assert (by.policy, by.scope) == (Policy.NONE, Scope.CONTAINER)


# ── masks ─────────────────────────────────────────────────────────────────────────────────────────


@given(st.sets(st.integers(0, 63)))
def test_a_mask_and_its_nodes_say_the_same(nodes: set[int]) -> None:
    assert nodes_of(mask_of(nodes)) == tuple(sorted(nodes))
    assert mask_of(nodes).bit_count() == len(nodes)


def test_a_node_number_that_no_mask_holds_is_no_node() -> None:
    """Plugins may send any 64-bit number (bitmask.go Add)."""
    assert mask_of([64, 2**40, -1, 1]) == mask_of([1])
