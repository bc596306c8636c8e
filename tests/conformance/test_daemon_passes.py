"""The daemon is a right plugin, whatever it finds its devices by: no resource that it serves fails a check.

Each example is served by a process of its own, on a machine made of files. What the judge looks up on its own
machine, paths and NUMA nodes, it looks up on that one here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from devplug.conformance.answers import answers, demand_none
from devplug.conformance.checks import all_checks
from devplug.conformance.program import Subject
from devplug.conformance.rules import absent_numa_faults
from devplug.conformance.runner import judge
from devplug.conformance.testbed import TestBed, once
from devplug.conformance.verdicts import Check, Outcome, SkippedError, Verdict
from devplug.daemon.config.loader import load
from devplug.daemon.config.selectors import Discover
from devplug.daemon.sources.host import Host
from tests.conformance.trials import TIMES, asked_for, on_one_start, side_by_side
from tests.daemon.examplemachines import add_gpus, machine_of_the_examples, write_nvidia_spec
from tests.daemon.gpumachines import build, needs_standin
from tests.daemon.hosts import needs_mknod

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
CHANGES: Final = "STR2?"
"""The checks that unplug a device: not in the quick set, because what other plugins need for it is long."""

AT_ONCE: Final = 3
"""How many daemons are judged side by side."""

# ── why a check is skipped: what a resource does not have ─────────────────────────────────────────

NO_PRE_START: Final = "pre-start is not announced in the options"
NO_NUMA: Final = "no device has a NUMA node"
NO_CDI_NAME: Final = "no response has a CDI name"
NO_VARIABLE: Final = "no response has an environment variable"
ALL_ALIKE: Final = "* have the same variables"
ONE_EACH: Final = frozenset({"*; one container may have 1", "Allocate gives no two devices*"})
TWO: Final = "2 healthy devices are listed, and 3 are needed"
SINGLE: Final = frozenset(
    {"1 healthy devices are listed, and ? are needed", "Allocate gives no two devices*"}
)

PLAIN: Final = frozenset(
    {
        NO_PRE_START,
        "no device is listed as Unhealthy",
        "no response has a mount",
        "no response has an annotation",
    }
)
NODES: Final = PLAIN | {NO_CDI_NAME}
NAMES: Final = PLAIN | {"no response has a device node", "no response has a path"}

SCRUBBED: Final = frozenset({"ALL13"})
"""How soon a device can be given again is up to the program that cleans it."""


@dataclass(frozen=True)
class Case:
    """One resource of an example; what is skipped is skipped for one of these reasons, and each occurs."""

    file: str
    resource_name: str
    skips: frozenset[str]
    usb_device: str = ""
    """What is unplugged and comes back."""
    node_name: str = "node-1"
    untried: frozenset[str] = frozenset()
    """Checks of something that is not the daemon's."""

    @property
    def resource(self) -> tuple[str, str]:
        return self.file, self.resource_name

    def __str__(self) -> str:
        return f"{self.file.removesuffix('.yaml')}-{self.resource_name.partition('/')[2]}"


CASES: Final = (
    Case("audio.yaml", "example.com/audio", NODES | {NO_VARIABLE, ALL_ALIKE, TWO}),
    Case("bundle.yaml", "example.com/dsp", NODES | {NO_NUMA} | SINGLE),
    Case("cameras.yaml", "example.com/camera", NODES | {ALL_ALIKE, TWO}, usb_device="camera"),
    Case("dongles.yaml", "example.com/coral", NAMES | {NO_VARIABLE, ALL_ALIKE, TWO}),
    Case("dongles.yaml", "example.com/microscope", NODES | {TWO}),
    Case("everyone.yaml", "example.com/tun", NODES | {NO_VARIABLE, NO_NUMA} | ONE_EACH),
    Case("fpga.yaml", "example.com/fpga", NODES, untried=SCRUBBED),
    Case("gpus-cdi.yaml", "nvidia.com/gpu", NAMES | {ALL_ALIKE}),
    Case("gpus.yaml", "nvidia.com/gpu", NODES, node_name="train-1"),
    Case("gpus.yaml", "nvidia.com/gpu.shared", NODES | ONE_EACH, node_name="serve-1"),
    Case("gpus.yaml", "nvidia.com/mig-1g.10gb", NODES | {TWO}, node_name="lab-1"),
    Case("nvme.yaml", "example.com/nvme", NODES | {TWO}, untried=SCRUBBED),
    Case("render.yaml", "example.com/render", NODES | {NO_VARIABLE} | ONE_EACH),
    Case("serial-nonroot.yaml", "example.com/serial", NAMES | {NO_NUMA, ALL_ALIKE}),
    Case("serial.yaml", "example.com/serial", NODES, usb_device="serial"),
    Case("sriov-dpdk.yaml", "example.com/vf", NODES),
    Case("sriov-vms.yaml", "example.com/vmnic", NODES),
    Case("tpm.yaml", "example.com/tpm", NODES | {NO_VARIABLE, NO_NUMA} | ONE_EACH),
)

KINDS: Final = {
    (path.name, str(resource.name)): resource.discover.kind
    for path in EXAMPLES.glob("*.yaml")
    for resource in load(path.read_bytes(), path.name).resources
}
"""How each resource of the examples is discovered."""

OURS: Final = """
version: 1
resources:
  - name: example.com/ours
    discover: {discover}
    expose:
      mounts: [{{hostPath: /usr/share, containerPath: /usr/share/ours, readOnly: true}}]
      env: {{OURS: "{{ids}}"}}
      annotations: {{example.com/ours: "{{ids}}"}}
      cdiDevices: ["example.com/ours=all"]
    health:
      - exec: {{command: [/bin/sh, -c, 'test "$0" != broken', "{{id}}"]}}
        period: 1m
"""
"""A resource that has all that the examples have not."""

SPEC: Final = '{"cdiVersion": "0.3.0", "kind": "example.com/ours", "devices": [{"name": "all"}]}'

# Only at the first of several starts: those that follow find what the machine has become.
RUN: Final = """
if ! [ -d {work}/dev ]; then
    mkdir {work}/dev {work}/cdi
    for name in a b c d broken; do ln -s /dev/null {work}/dev/$name; done
    printf %s "$SPEC" > {work}/cdi/ours.json
    printf %s "$CONFIG" > {work}/devplug.yaml
fi
exec "$0" -m devplug run -c {work}/devplug.yaml
"""


# ── how they are tried ────────────────────────────────────────────────────────────────────────────


def ours(discover: str) -> Subject:
    """Return `devplug run` as it is, with `OURS`, for five devices, of which one is broken."""
    return Subject(
        ("sh", "-c", RUN, sys.executable),
        environment={"CONFIG": OURS.format(discover=discover), "SPEC": SPEC},
        unplug=("rm", "{work}/dev/a"),
        replug=("ln", "-s", "/dev/null", "{work}/dev/a"),
        cdi_dirs=("{work}/cdi",),
    )


def served(case: Case, folder: Path) -> tuple[Subject, Path]:
    """Return the daemon that serves an example, and the root of its machine."""
    root = folder / "machine"
    usb_devices = machine_of_the_examples(root)
    spec_folder = folder / "etc-cdi"
    environment = {"PYTHONPATH": str(ROOT), "NODE_NAME": case.node_name}
    if "nvidia" in case.resource_name:
        library_folder = build(folder / "library")
        write_nvidia_spec(spec_folder, add_gpus(root, library_folder))
        environment |= {"LD_LIBRARY_PATH": str(library_folder), "STANDIN_NVML": str(root / "nvml")}
    # The programs of the reader's own.
    text = (EXAMPLES / case.file).read_text()
    for program in ("/opt/selftest", "/opt/scrub", "/opt/wipe"):
        text = text.replace(program, "/bin/true")
    file = folder / "devplug.yaml"
    file.write_text(text)
    command = (sys.executable, "-m", "tests.conformance.treedaemon", str(file), str(root), "{work}/cdi")
    unplug, replug = usb_devices[case.usb_device].commands(root) if case.usb_device else ((), ())
    cdi_dirs = ("{work}/cdi", str(spec_folder))
    return Subject(command, environment, case.resource_name, unplug, replug, cdi_dirs=cdi_dirs), root


def looking_below(root: Path, one: Check) -> Check:
    """Return a check that looks at the machine below `root`, if it is one that looks at the machine."""
    host = Host(root)

    async def node_paths_are_nodes(bed: TestBed) -> None:
        given = (await once(bed, answers)).values()
        paths = {node.host_path for response in given for node in response.device_nodes}
        if not paths:
            raise SkippedError("no response has a device node")
        demand_none(f"{path} is no node" for path in paths if not (host.nodes_in(path) or host.node(path)))

    async def numa_nodes_exist(bed: TestBed) -> None:
        if not any(device.numa_nodes for device in bed.devices):
            raise SkippedError(NO_NUMA)
        demand_none(absent_numa_faults(bed.devices, frozenset({0, 1})))

    function = {"ALL14": node_paths_are_nodes, "STR16": numa_nodes_exist}.get(one.id)
    return replace(one, function=function) if function else one


async def verdicts_of(case: Case, folder: Path) -> Sequence[Verdict]:
    subject, root = await asyncio.to_thread(served, case, folder)
    tried = [
        on_one_start(looking_below(root, one))
        for one in all_checks()
        if (one.quick or (case.usb_device and fnmatchcase(one.id, CHANGES))) and one.id not in case.untried
    ]
    return await judge(subject, tried, times=TIMES, jobs=2)


@pytest.fixture(scope="module")
async def verdicts_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mapping[str, Awaitable[Sequence[Verdict]]]]:
    """Try all cases that are asked for, some at a time."""
    trials = {
        str(case): partial(verdicts_of, case, tmp_path_factory.mktemp("machine"))
        for case in asked_for(request, "case")
    }
    async with side_by_side(trials, AT_ONCE) as verdicts:
        yield verdicts


def judged(verdicts: Sequence[Verdict], skips: frozenset[str]) -> None:
    """Hold verdicts against the table: nothing fails but a note, and what is skipped has a reason in it."""
    failed = {one.check.id: one.seen for one in verdicts if one.outcome is Outcome.FAILED}
    counting = {one.check.id for one in verdicts if one.check.severity.counts}
    assert failed.keys() & counting == set(), failed
    skipped = {one.check.id: one.seen for one in verdicts if one.outcome is Outcome.SKIPPED}
    assert "ALL01" not in skipped
    unlisted = {id_: seen for id_, seen in skipped.items() if not any(fnmatchcase(seen, w) for w in skips)}
    assert unlisted == {}
    assert [want for want in skips if not any(fnmatchcase(seen, want) for seen in skipped.values())] == []


# ── the claims ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.nightly
async def test_the_daemon_passes_every_check_with_a_path() -> None:
    verdicts = await judge(ours('{path: "{work}/dev/*"}'), all_checks(), times=TIMES)
    judged(verdicts, frozenset({NO_PRE_START, NO_NUMA}))


async def test_devices_without_hardware_fail_no_check() -> None:
    subject = ours("{static: {ids: [a, b, c, d, broken], numaNodes: {a: 0}}}")
    tried = [on_one_start(one) for one in all_checks() if one.quick]
    judged(
        await judge(subject, tried, times=TIMES, jobs=2),
        frozenset({NO_PRE_START, "no response has a device node"}),
    )


def test_every_example_and_every_kind_of_discovery_is_tried() -> None:
    tried = {case.resource for case in CASES}
    # kvm and fuse are as tun is.
    assert KINDS.keys() - tried == {("everyone.yaml", f"example.com/{name}") for name in ("kvm", "fuse")}
    assert {*(KINDS[one] for one in tried), "static"} == set(Discover.alternatives)


def marks(case: Case) -> Sequence[pytest.MarkDecorator]:
    return [needs_standin] if "nvidia" in case.resource_name else []


@pytest.mark.nightly  # each takes 8 s; by day the devices without hardware, above, are judged
@needs_mknod
@pytest.mark.parametrize("case", [pytest.param(one, marks=marks(one)) for one in CASES], ids=str)
async def test_an_example_fails_no_check(
    case: Case, verdicts_on: Mapping[str, Awaitable[Sequence[Verdict]]]
) -> None:
    judged(await verdicts_on[str(case)], case.skips)
