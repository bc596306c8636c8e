"""The problems of a node, for people and for the exit code, and the state of its processes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from devplug.cli.status.views.text import Cell, Tone, age, holders
from devplug.errors import one_line
from devplug.monitor.node_view import UNKNOWN
from devplug.monitor.words import driver_sentence, is_stale
from devplug.status import PodResourcesStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.status import DeviceStatus, DriverStatus, NodeStatus, ProcessStatus


def answers(node: NodeStatus) -> bool:
    """Whether a process of ours, or the kubelet, has answered."""
    return bool(node.processes) or node.pod_resources.answered_at is not None


def essence(node: NodeStatus) -> NodeStatus:
    """Return the parts of a status whose change is shown to people: not the times of the last answers."""
    return replace(
        node,
        at=0,
        processes=tuple(
            replace(one, pod_resources=one.pod_resources and _without_times(one.pod_resources))
            for one in node.processes
        ),
        pod_resources=_without_times(node.pod_resources),
    )


def _without_times(status: PodResourcesStatus) -> PodResourcesStatus:
    return PodResourcesStatus(trouble=status.trouble)


def problems_of(node: NodeStatus) -> tuple[str, ...]:
    """Return all that makes the exit code 1, each as a sentence of its own; none if all is well."""
    return tuple(_problems(node))


def _problems(node: NodeStatus) -> Iterator[str]:
    if not node.processes:
        yield "no devplug daemon answers"
    for resource in node.resources:
        if resource.fault:
            word = {None: "", True: " has a fault", False: " is not registered"}[resource.is_registered]
            yield f"{resource.name}{word}: {one_line(resource.fault)}"
        elif resource.takeover is not None:
            yield f"{resource.name} may be taken over: {one_line(resource.takeover.reason)}"
        for device in resource.devices:
            if device.is_held and _is_bad(device):
                by = holders([device]).text
                yield f"{resource.name} {device.id} is {device.health} and held: {by}"
    for process in node.processes:
        if process.config is not None and process.config.problems:
            yield one_line(process.config.lines()[0])
    yield from map(one_line, node.problems)
    if node.pod_resources.trouble:
        yield f"the kubelet does not tell who holds what: {one_line(node.pod_resources.trouble)}"


def _is_bad(device: DeviceStatus) -> bool:
    """Whether it is known not to be healthy; the health of another plugin's device is often unknown."""
    return not device.is_healthy and (device.health != UNKNOWN or bool(device.reason))


def daemon_state(node: NodeStatus) -> Cell:
    """Return the state of our processes, in a few words."""
    if not node.processes:
        return Cell("no daemon answers", Tone.BAD)
    faulty = [process for process in node.processes if process.faults]
    count, words = len(node.processes), {*map(_word, node.processes)}
    what = words.pop() if len(words) == 1 else "process"
    if count > 1:
        what = f"{count} {what}{'es' if words else 's'}"
    if faulty:
        return Cell(f"{f'{len(faulty)} of ' if count > 1 else ''}{what} NOT ready", Tone.BAD)
    return Cell(f"{what} ready", Tone.GOOD)


def _word(process: ProcessStatus) -> str:
    return "daemon" if process.config is not None else "plugin"


def kubelet_state(node: NodeStatus) -> Cell:
    """Return the state of the kubelet, in a few words."""
    if node.pod_resources.trouble:
        return Cell("kubelet does not answer", Tone.BAD)
    if node.pod_resources.answered_at is None:
        return Cell("kubelet not asked yet", Tone.DIM)
    return Cell("kubelet answers", Tone.GOOD)


def closing(node: NodeStatus, now: float, folder: str) -> tuple[Cell, ...]:
    """Return the sentences below the tables: on each process, its configuration, the kubelet and the rest."""
    return tuple(_closing(node, now, folder))


def _closing(node: NodeStatus, now: float, folder: str) -> Iterator[Cell]:
    if not node.processes:
        yield Cell(
            f"no daemon answers in {folder}; on a machine with its config: devplug run -c FILE; "
            "in a cluster, look at the log of its pod",
            Tone.BAD,
        )
    for process in node.processes:
        yield from _process(process, now, is_one_of_many=len(node.processes) > 1)
        yield from (_driver(one, now) for one in process.drivers)
    if node.pod_resources.trouble:
        yield Cell(
            f"the kubelet does not tell who holds what: {one_line(node.pod_resources.trouble)}", Tone.BAD
        )
    for problem in node.problems:
        yield Cell(one_line(problem), Tone.WARN)


def _driver(driver: DriverStatus, now: float) -> Cell:
    tone = Tone.BAD if driver.fault else Tone.WARN if is_stale(driver, now) else Tone.PLAIN
    return Cell(driver_sentence(driver, now), tone)


def _process(process: ProcessStatus, now: float, *, is_one_of_many: bool) -> Iterator[Cell]:
    name = f"{_word(process)} {process.process}" if is_one_of_many else _word(process)
    state = f"NOT ready: {'; '.join(map(one_line, process.faults))}" if process.faults else "ready"
    config = process.config
    if config is None:
        yield Cell(
            f"{name} {state}; up {age(now, process.started_at)}, without a config file",
            Tone.BAD if process.faults else Tone.PLAIN,
        )
        return
    errors = len(config.problems)
    counted = f"{errors} error{'' if errors == 1 else 's'}"
    yield Cell(
        f"{name} {state}; config read {age(now, config.applied_at)} ago, {counted}",
        Tone.BAD if process.faults or errors else Tone.PLAIN,
    )
    for line in config.lines():
        yield Cell(f"    {line}", Tone.BAD)
    for line in config.waiting:
        yield Cell(f"    {line}")
