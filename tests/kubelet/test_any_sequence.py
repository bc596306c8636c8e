"""Whatever happens to a node, and in whatever order: some things always hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from devplug.k8s.pod_requests import ALWAYS
from devplug.kubelet import checkpoint as checkpoints
from devplug.kubelet.allocation import DeviceAllocations
from devplug.kubelet.pods import Container, ContainerState, Pod
from devplug.wire.sockets import socket_identity
from tests.kubelet.any_node import RESOURCES, PluginNode, one_of

Containers: TypeAlias = tuple[Container, ...]
Spec: TypeAlias = tuple[Containers, Containers]

limits = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from([1, 2, 3, 0]), max_size=2)


def _containers(prefix: str, least: int, *restart_policies: str | None) -> st.SearchStrategy[Containers]:
    one = st.tuples(limits, st.sampled_from(restart_policies))
    return st.lists(one, min_size=least, max_size=2).map(
        lambda drawn: tuple(Container(f"{prefix}{number}", *of_one) for number, of_one in enumerate(drawn))
    )


specs = st.tuples(_containers("i", 0, None, ALWAYS), _containers("c", 1, None))
"""Init containers and sidecars, and app containers."""


class Node(PluginNode):
    """A node with pods, beside its plugins."""

    # ── pods ──

    def active_pods(self) -> list[str]:
        return [uid for uid in self.pods if uid not in self.ended]

    def all_pods(self) -> list[str]:
        return list(self.pods)

    @rule(specs=st.lists(specs, min_size=1, max_size=3), are_started=st.booleans(), are_static=st.booleans())
    def pods_come(self, specs: Sequence[Spec], *, are_started: bool, are_static: bool) -> None:
        """Without the API server only static ones do."""
        for init_containers, containers in specs if are_static or self.kubelet.is_api_server_up else ():
            uid = f"u{len(self.ever)}"
            pod = Pod(uid, uid, init_containers=init_containers, containers=containers, is_static=are_static)
            self.ever.add(uid)
            self.pods[uid] = pod
            self.do(self._admit(pod))
            for _ in pod.in_start_order() if are_started else ():
                if uid not in self.ended:
                    self.do(self._start_next(pod))

    async def _admit(self, pod: Pod) -> None:
        gone = self.ended | self.ever - {*self.pods}
        known = {
            name for name, state in self._allocations.resources.items() if state.is_device_plugin_resource
        }
        async with self.settling():
            status = await self.kubelet.admit(pod)
        if status.is_terminal:
            self.ended.add(pod.uid)
            return
        held = self._counts(pod.uid)
        wanted = {
            (container.name, name): count
            for container in pod.in_start_order()
            for name, count in container.limits.items()
            if count and name in known
        }
        assert held == wanted
        if held and self.kubelet.sources_ready:
            assert gone.isdisjoint(one.pod_uid for one in self.kubelet.allocations())
        self.is_written |= bool(held)

    def known_pods(self) -> list[str]:
        """Those active ones that the kubelet has heard of since it started."""
        return [uid for uid in self.active_pods() if uid not in self.unheard]

    @precondition(lambda self: self.known_pods())
    @rule(uid=one_of("known_pods"))
    def a_container_starts(self, uid: str) -> None:
        """The next one in the order of starts; a regular init container runs to its end."""
        self.do(self._start_next(self.pods[uid]))

    async def _start_next(self, pod: Pod) -> None:
        status = self.kubelet.pod(pod.uid)
        waiting = [
            one
            for one in pod.in_start_order()
            if (state := status.container(one.name).state) is ContainerState.WAITING
            or (state is ContainerState.TERMINATED and not pod.runs_to_its_end(one))
        ]
        if not waiting:
            return
        container = waiting[0]
        before = self.kubelet.allocations()
        async with self.settling():
            started = await self.kubelet.start_container(pod.uid, container.name)
        if started.state is not ContainerState.RUNNING:
            return
        held = [
            device_id
            for one in self.kubelet.allocations()
            if (one.pod_uid, one.container_name) == (pod.uid, container.name)
            for device_id in one.device_ids
        ]
        given = started.options.envs.values() if started.options else ()
        assert Counter(held) == Counter(device_id for ids in given for device_id in ids.split(","))
        self.is_written = self.kubelet.allocations() != before
        if pod.runs_to_its_end(container):
            self.kubelet.end_container(pod.uid, container.name)

    def running_containers(self) -> list[tuple[str, str]]:
        return [
            (uid, container.name)
            for uid in self.active_pods()
            for container in self.kubelet.pod(uid).containers
            if container.state is ContainerState.RUNNING
        ]

    @precondition(lambda self: self.running_containers())
    @rule(which=one_of("running_containers"))
    def a_container_ends(self, which: tuple[str, str]) -> None:
        self.is_written = False
        self.kubelet.end_container(*which)

    @precondition(lambda self: self.pods)
    @rule(uid=one_of("all_pods"), is_removed=st.booleans())
    def a_pod_ends(self, uid: str, *, is_removed: bool) -> None:
        self.is_written = False
        self.ended.add(uid)
        self.kubelet.end_pod(uid)
        if is_removed:
            self.kubelet.remove_pod(uid)
            del self.pods[uid]
            self.ended.discard(uid)

    # ── the kubelet and the node ──

    @rule(reboot=st.booleans(), orderly=st.booleans(), plugins_first=st.sampled_from([True, True, False]))
    def the_kubelet_restarts(self, *, reboot: bool, orderly: bool, plugins_first: bool) -> None:
        self.do(self._restart(reboot=reboot, orderly=orderly, plugins_first=plugins_first))

    async def _restart(self, *, reboot: bool, orderly: bool, plugins_first: bool) -> None:
        newest = {resource_name: name for name, resource_name in self.resource_of.items()}
        in_file = self._restored() if self._file().exists() else DeviceAllocations()
        async with self.settling():
            await self.kubelet.restart(reboot=reboot, orderly=orderly, with_pods=False)
            self._restarted()
        assert self._allocations.assignments == in_file.assignments
        for name in newest.values() if plugins_first else ():
            await self._come(self.plugins[name])
        await self._readmit()

    @rule()
    def the_api_server_goes(self) -> None:
        self.kubelet.lose_api_server()

    @precondition(lambda self: not self.kubelet.is_api_server_up)
    @rule()
    def the_api_server_comes_back(self) -> None:
        self.do(self._find_api_server())

    async def _find_api_server(self) -> None:
        async with self.settling():
            await self.kubelet.find_api_server()
        self.unheard.clear()
        self.ended.update(uid for uid in self.pods if self.kubelet.pod(uid).is_terminal)

    @rule(seconds=st.sampled_from([1, 299, 301]))
    def the_nodes_status_is_written(self, seconds: float) -> None:
        self.clock.seconds += seconds
        before = socket_identity(self._file())
        self.kubelet.update_node_status()
        self.is_written = socket_identity(self._file()) != before
        assert self.is_written == bool(self.model.updated(self.clock()))

    # ── what always holds ──

    @invariant()
    def it_runs(self) -> None:
        assert self.life is not None
        if self.life.ended.done():
            self.life.ended.result()
        assert self.kubelet.is_running

    @invariant()
    def no_device_is_in_two_places(self) -> None:
        """Neither in two active pods, nor in two containers of a pod that live as long as it does."""
        of_pods = Counter[tuple[str, str]]()
        for uid in self.active_pods():
            lasting = {one.name for one in self.pods[uid].lasting_containers()}
            mine = [held for held in self.kubelet.allocations() if held.pod_uid == uid]
            in_lasting = Counter(
                (held.resource_name, device_id)
                for held in mine
                if held.container_name in lasting
                for device_id in held.device_ids
            )
            assert all(times == 1 for times in in_lasting.values()), in_lasting
            of_pods.update(
                {(held.resource_name, device_id) for held in mine for device_id in held.device_ids}
            )
        assert all(times == 1 for times in of_pods.values()), of_pods

    @invariant()
    def what_the_kubelet_has_not_heard_of_stays_assigned(self) -> None:
        assert {uid: self._counts(uid) for uid in self.unheard} == self.unheard

    @invariant()
    def what_is_assigned_belongs_to_a_pod_that_was_here(self) -> None:
        assert self.ever.issuperset(held.pod_uid for held in self.kubelet.allocations())

    def _assigned(self, resource_name: str) -> set[str]:
        return {
            device_id
            for held in self.kubelet.allocations()
            if held.resource_name == resource_name
            for device_id in held.device_ids
        }

    @invariant()
    def what_is_available_is_healthy_and_assigned_to_nobody(self) -> None:
        for name, resource in self.model.resources.items():
            available = self._allocations.state(name).available
            assert available <= resource.healthy
            assert available.isdisjoint(self._assigned(name))

    @invariant()
    def nothing_is_left_over_from_a_refused_allocate(self) -> None:
        for name in self.model.resources if self.is_refused else ():
            assert (self._allocations.state(name).allocated or set()) == self._assigned(name)

    @invariant()
    def a_pod_that_has_ended_stays_so(self) -> None:
        for uid in self.pods:
            assert self.kubelet.pod(uid).is_terminal == (uid in self.ended)

    @invariant()
    def what_was_just_written_is_what_is_known(self) -> None:
        if not self.is_written:
            return
        written = checkpoints.decode(self._file().read_bytes())
        known = self._allocations.resources
        assert {*(written.registered or ())} == {name for name in known if known[name].healthy is not None}
        assert len(written.entries or ()) == len(self._allocations.assignments)
        assert self._restored().assignments == self._allocations.assignments


class MendedNode(Node):
    """A node without the flaws of 1.36: its kubelet never crashes."""

    compat = False


@pytest.mark.timeout(600)  # to have the time to find the shortest sequence, where one fails
@pytest.mark.parametrize("machine", [Node, pytest.param(MendedNode, marks=pytest.mark.nightly)])
def test_the_books_are_right_after_any_sequence_of_events(machine: type[Node]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings().max_examples // 5,
            stateful_step_count=40,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
