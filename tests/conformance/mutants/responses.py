"""Mutants whose answers hold what no container can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.devices import ContainerResponse
from tests.conformance.mutants import Mutant
from tests.conformance.spoilt import changed, mount, node

if TYPE_CHECKING:
    from tests.conformance.right import Ids


class GivesAFileAsANode(Mutant):
    """Gives a plain file where a device node is due."""

    fails = ("ALL14",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(
            super().response(ids), device_nodes=[node("/etc/passwd", f"/dev/mutant-{id_}") for id_ in ids]
        )


class GivesANodeThatIsGone(Mutant):
    """Gives a path without looking at it."""

    fails = ("ALL14",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), device_nodes=[node(f"/dev/gone-{id_}") for id_ in ids])


class GivesNoPermissions(Mutant):
    """Leaves the permissions empty."""

    fails = ("ALL15",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), device_nodes=[node("/dev/null", permissions="")])


class GivesAllDevicesOnePath(Mutant):
    """Calls every device `/dev/mutant` in the container."""

    fails = ("ALL16",)

    def response(self, ids: Ids) -> ContainerResponse:
        paths = {"dev-0": "/dev/null", "dev-1": "/dev/zero", "dev-2": "/dev/full", "dev-3": "/dev/random"}
        return changed(super().response(ids), device_nodes=[node(paths[id_], "/dev/mutant") for id_ in ids])


class GivesARelativePath(Mutant):
    """Forgets the first slash of the container path."""

    fails = ("ALL16",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), mounts=[mount(self.work, "run/mutant")])


class CoversProc(Mutant):
    """Puts a folder of its own over what is in /proc."""

    fails = ("ALL17",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), mounts=[mount(self.work, "/proc/driver/mutant")])


class MountsWhatIsNotThere(Mutant):
    """Mounts the libraries of a driver that is not installed."""

    fails = ("ALL18",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), mounts=[mount(self.work / "no-such-lib", "/run/mutant")])


class MountsANode(Mutant):
    """Mounts the device node instead of giving it."""

    fails = ("ALL19",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), mounts=[mount("/dev/null", "/dev/mounted")])


class GivesANamelessVariable(Mutant):
    """Sets a variable whose name has an equals sign in it."""

    fails = ("ALL20",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), envs={"MUTANT_IDS": ",".join(ids), "MUTANT=": "1"})


class SetsTheLoadersPath(Mutant):
    """Tells the loader of every program where its driver is."""

    fails = ("ALL21",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(
            super().response(ids), envs={"MUTANT_IDS": ",".join(ids), "LD_LIBRARY_PATH": "/opt/mutant"}
        )


class GivesHalfACdiName(Mutant):
    """Gives the kind of a CDI spec without the device."""

    fails = ("ALL22",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), cdi_devices=["example.com/mutant"])


class GivesAnUndefinedCdiName(Mutant):
    """Gives CDI names, as an annotation, and writes no spec for them."""

    fails = ("ALL23",)

    def response(self, ids: Ids) -> ContainerResponse:
        names = ",".join(f"example.com/mutant={id_}" for id_ in ids)
        return changed(super().response(ids), annotations={"cdi.k8s.io/mutant": names})


class AnnotatesWithANamelessKey(Mutant):
    """Uses a path as the key of an annotation."""

    fails = ("ALL24",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), annotations={"/dev/mutant": ids[0]})


class GivesNothing(Mutant):
    """Answers with an empty container response."""

    fails = ("ALL25",)

    def response(self, ids: Ids) -> ContainerResponse:
        return ContainerResponse()


class NamesTheFirstDeviceOnly(Mutant):
    """Tells a container with two devices of one."""

    fails = ("ALL26",)

    def response(self, ids: Ids) -> ContainerResponse:
        return changed(super().response(ids), envs={"MUTANT_IDS": ids[0]})


class LetsContainersMakeNodes(Mutant):
    """Gives the permission m with each node, as many plugins do."""

    fails = ("ALL30",)

    def response(self, ids: Ids) -> ContainerResponse:
        nodes = [node("/dev/null", f"/dev/mutant-{id_}", permissions="rwm") for id_ in ids]
        return changed(super().response(ids), device_nodes=nodes)
