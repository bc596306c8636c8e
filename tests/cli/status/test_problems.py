"""What makes `devplug status` end with 1, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from devplug.cli.status.views.problems import answers, daemon_state, essence, kubelet_state, problems_of
from devplug.monitor.node_view import UNKNOWN
from devplug.status import NodeStatus, PodResourcesStatus
from tests.cli.status.made import LAB, NOW, READER, TAKEOVER, daemon, healthy, node, resource, unhealthy

FOREIGN: dict[str, Any] = {"is_registered": None, "registered_at": None, "process": None}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(node(resource(healthy("a", READER))), id="a healthy device is held"),
        pytest.param(LAB, id="an unhealthy device that nobody holds"),
        pytest.param(node(resource(is_registered=False)), id="a resource that waits for its first device"),
        pytest.param(
            node(resource(healthy("a", READER, health=UNKNOWN), **FOREIGN)), id="nobody tells the health"
        ),
    ],
)
def test_nothing_is_wrong(one: NodeStatus) -> None:
    assert problems_of(one) == ()


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            node(resource(is_registered=False, fault="no kubelet is connected")),
            "example.com/serial is not registered: no kubelet is connected",
        ),
        (node(resource(fault="devices() failed")), "example.com/serial has a fault: devices() failed"),
        (
            node(resource(takeover=TAKEOVER)),
            "example.com/serial may be taken over: another plugin registers this name",
        ),
        (
            node(resource(takeover=TAKEOVER, fault=TAKEOVER.reason)),
            "example.com/serial has a fault: another plugin registers this name",
        ),
        (
            node(resource(unhealthy("a", "worn", READER))),
            "example.com/serial a is Unhealthy and held: lab/meter-0 (reader)",
        ),
        (
            node(resource(healthy("a", READER, health=UNKNOWN, reason="gone"), **FOREIGN)),
            "example.com/serial a is Unknown and held: lab/meter-0 (reader)",
        ),
        (node(processes=()), "no devplug daemon answers"),
        (node(processes=(daemon(problems=("3:1: bad",)),)), "/etc/devplug/config.yaml: 3:1: bad"),
        (
            node(pod_resources=PodResourcesStatus(trouble="no socket")),
            "the kubelet does not tell who holds what: no socket",
        ),
        (node(problems=("status-1.sock: no right",)), "status-1.sock: no right"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(one: NodeStatus, said: str) -> None:
    assert problems_of(one) == (said,)


def test_a_node_answers_if_a_process_or_its_kubelet_does() -> None:
    silent = PodResourcesStatus(trouble="no socket")
    assert answers(node(pod_resources=silent))
    assert answers(node(processes=()))
    assert not answers(node(processes=(), pod_resources=silent))


def test_the_states_of_daemons_and_kubelet_fit_into_a_few_words() -> None:
    faulty = daemon(resource(fault="x"), process=8)
    assert daemon_state(node()).text == "daemon ready"
    assert daemon_state(node(processes=())).text == "no daemon answers"
    assert daemon_state(node(processes=(faulty,))).text == "daemon NOT ready"
    assert daemon_state(node(processes=(daemon(), faulty))).text == "1 of 2 daemons NOT ready"
    plugin = replace(daemon(), config=None)
    assert daemon_state(node(processes=(plugin,))).text == "plugin ready"
    assert daemon_state(node(processes=(plugin, daemon()))).text == "2 processes ready"
    assert kubelet_state(node()).text == "kubelet answers"
    assert kubelet_state(node(pod_resources=PodResourcesStatus())).text == "kubelet not asked yet"
    assert kubelet_state(node(pod_resources=PodResourcesStatus(trouble="x"))).text == (
        "kubelet does not answer"
    )


def test_asking_again_with_the_same_answer_is_no_change() -> None:
    process = daemon(pod_resources=PodResourcesStatus(answered_at=NOW - 5))
    before = node(processes=(process,))
    later = replace(
        before,
        at=NOW + 9,
        processes=(replace(process, pod_resources=PodResourcesStatus(answered_at=NOW + 5)),),
        pod_resources=PodResourcesStatus(answered_at=NOW + 8, errors={"refused": 2}),
    )
    assert essence(before) == essence(later)
    assert essence(before) != essence(replace(later, pod_resources=PodResourcesStatus(trouble="x")))
