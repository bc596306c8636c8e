"""Mutants whose answers hold what no container can use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from devplug.devices import ContainerResponse
from tests.conformance.mutants import Mutant, fails
from tests.conformance.right import Ids
from tests.conformance.spoilt import changed, mount, node


def answering(check: str, **fields: Callable[[Mutant, Ids], Any]) -> type[Mutant]:
    """A mutant that answers a container with something else in these fields than is right."""

    @fails(check)
    class Answering(Mutant):
        def response(self, ids: Ids) -> ContainerResponse:
            wrong = {name: value(self, ids) for name, value in fields.items()}
            return changed(super().response(ids), **wrong)

    return Answering


GivesAFileAsANode = answering(
    "ALL14", device_nodes=lambda _, ids: [node("/etc/passwd", f"/dev/mutant-{id_}") for id_ in ids]
)
"""Gives a plain file where a device node is due."""
GivesANodeThatIsGone = answering(
    "ALL14", device_nodes=lambda _, ids: [node(f"/dev/gone-{id_}") for id_ in ids]
)
"""Gives a path without looking at it."""
GivesNoPermissions = answering("ALL15", device_nodes=lambda _, __: [node("/dev/null", permissions="")])
"""Leaves the permissions empty."""
GivesARelativePath = answering("ALL16", mounts=lambda plugin, _: [mount(plugin.work, "run/mutant")])
"""Forgets the first slash of the container path."""
CoversProc = answering("ALL17", mounts=lambda plugin, _: [mount(plugin.work, "/proc/driver/mutant")])
"""Puts a folder of its own over what is in /proc."""
MountsWhatIsNotThere = answering(
    "ALL18", mounts=lambda plugin, _: [mount(plugin.work / "no-such-lib", "/run/mutant")]
)
"""Mounts the libraries of a driver that is not installed."""
MountsANode = answering("ALL19", mounts=lambda _, __: [mount("/dev/null", "/dev/mounted")])
"""Mounts the device node instead of giving it."""
GivesANamelessVariable = answering("ALL20", envs=lambda _, ids: {"MUTANT_IDS": ",".join(ids), "MUTANT=": "1"})
"""Sets a variable whose name has an equals sign in it."""
SetsTheLoadersPath = answering(
    "ALL21", envs=lambda _, ids: {"MUTANT_IDS": ",".join(ids), "LD_LIBRARY_PATH": "/opt/mutant"}
)
"""Tells the loader of every program where its driver is."""
GivesHalfACdiName = answering("ALL22", cdi_devices=lambda _, __: ["example.com/mutant"])
"""Gives the kind of a CDI spec without the device."""
GivesAnUndefinedCdiName = answering(
    "ALL23",
    annotations=lambda _, ids: {"cdi.k8s.io/mutant": ",".join(f"example.com/mutant={i}" for i in ids)},
)
"""Gives CDI names, as an annotation, and writes no spec for them."""
AnnotatesWithANamelessKey = answering("ALL24", annotations=lambda _, ids: {"/dev/mutant": ids[0]})
"""Uses a path as the key of an annotation."""
NamesTheFirstDeviceOnly = answering("ALL26", envs=lambda _, ids: {"MUTANT_IDS": ids[0]})
"""Tells a container with two devices of one."""
LetsContainersMakeNodes = answering(
    "ALL30",
    device_nodes=lambda _, ids: [node("/dev/null", f"/dev/mutant-{i}", permissions="rwm") for i in ids],
)
"""Gives the permission m with each node, as many plugins do."""


@fails("ALL16")
class GivesAllDevicesOnePath(Mutant):
    """Calls every device `/dev/mutant` in the container."""

    def response(self, ids: Ids) -> ContainerResponse:
        paths = {"dev-0": "/dev/null", "dev-1": "/dev/zero", "dev-2": "/dev/full", "dev-3": "/dev/random"}
        return changed(super().response(ids), device_nodes=[node(paths[id_], "/dev/mutant") for id_ in ids])


@fails("ALL25")
class GivesNothing(Mutant):
    """Answers with an empty container response."""

    def response(self, ids: Ids) -> ContainerResponse:
        return ContainerResponse()
