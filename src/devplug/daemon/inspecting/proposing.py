"""Which configuration would serve what is on a machine, and which selector finds each device. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.daemon.inspecting.kinds import subsystem_of_usb_kind
from devplug.daemon.inspecting.selecting import View
from devplug.daemon.responses import pcidevice_variable
from devplug.errors import one_line
from devplug.yamltext import flow, yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.daemon.inspecting.kinds import Sight
    from devplug.daemon.inspecting.selecting import Selector
    from devplug.daemon.inspecting.survey import Survey
    from devplug.daemon.sources.found import Found
    from devplug.yamltext import Value

__all__ = ["Proposal", "finder_of", "proposals_of", "proposed_text"]

DOMAIN: Final = "example.com"
REPLICAS: Final = 100


_SHARED: Final = {
    **dict.fromkeys(("kvm", "fuse", "tun", "vhost-net", "vhost-vsock", "vsock"), REPLICAS),
    "tpm": 8,
}
"""Kinds that several containers may use at once without knowing of each other."""

_PATHS: Final = {
    **{kind: f"/dev/{kind}{{index}}" for kind in ("serial", "camera", "uart", "video")},
    "hid": "/dev/hidraw{index}",
    "render": "/dev/dri/{file}",
    "audio": "/dev/snd/",
}
"""Where a container has the nodes of a kind; those that are missing here keep their paths."""

_VARIABLES: Final = {"serial": "SERIAL_PORTS", "camera": "CAMERAS"}

_ABOUT: Final = {
    "serial": "USB serial adapters",
    "camera": "USB cameras",
    "uart": "serial ports of the board",
    "vf": "SR-IOV virtual functions",
    "tpm": "TPM through the kernel's resource manager, which takes turns",
    "render": "GPUs for rendering and computing",
    "gpu": "NVIDIA GPUs",
    "tun": "network interfaces of programs, as for VPNs; the pod needs NET_ADMIN, too",
    "audio": "sound cards",
    "fpga": "FPGA cards",
    "rdma": "network adapters with RDMA",
    "kvm": "virtual machines",
    "fuse": "file systems that are programs",
    "vsock": "sockets to the hypervisor and its other guests",
    "vhost-net": "networks of virtual machines",
    "vhost-vsock": "sockets into virtual machines",
}

_HEAD: Final = """\
# What devplug found on this machine. Take out what pods need not have, write your own domain instead of
# example.com, and check the file with: devplug validate FILE
version: 1
resources:
"""

NAMES_LIMIT: Final = 4
MODEL_LIMIT_BYTES: Final = 60


@dataclass(frozen=True, slots=True)
class Proposal:
    """One resource that could be served on a machine."""

    name: str
    kind: str
    discover: str
    selectors: tuple[Selector, ...]
    devices: tuple[Found, ...]

    def value(self) -> Value:
        """Return the resource as the file has it."""
        selectors = [_written(one) for one in self.selectors]
        value: dict[str, Value] = {
            "name": self.name,
            "discover": {self.discover: selectors[0] if len(selectors) == 1 else selectors},
        }
        if expose := _expose(self):
            value["expose"] = expose
        if replicas := _SHARED.get(self.kind):
            value["share"] = {"replicas": replicas, "maxPerContainer": 1}
        return value


def proposals_of(sights: Iterable[Sight], survey: Survey) -> tuple[Proposal, ...]:
    """Return a resource for each kind of device that is worth one, in the order of the sights."""
    groups: dict[tuple[str, str, str], list[Found]] = {}
    for sight in sights:
        if sight.kind:
            groups.setdefault((sight.kind, sight.discover, sight.subsystem), []).append(sight.found)
    count_of: Counter[str] = Counter()
    proposals = []
    for (kind, discover, subsystem), devices in groups.items():
        view = View(discover, subsystem, survey)
        if selectors := view.exact(view.candidates(kind, devices), devices):
            count_of[kind] += 1
            suffix = "" if count_of[kind] == 1 else f"-{subsystem or discover}"
            name = f"{DOMAIN}/{kind}{suffix}"
            proposals.append(Proposal(name, kind, discover, selectors, tuple(devices)))
    return tuple(proposals)


def finder_of(sight: Sight, proposals: Iterable[Proposal], survey: Survey) -> str:
    """Return the selector that finds a device, the proposed one if there is: `usb: {vendor: "0403"}`."""
    view = View(sight.discover, sight.subsystem, survey)
    proposed = [
        selector
        for one in proposals
        if one.discover == sight.discover and sight.found in one.devices
        for selector in one.selectors
        if view.finds(selector, sight.found)
    ]
    *_, narrowest = view.candidates("", [sight.found])
    return f"{sight.discover}: {flow(_written([*proposed, *narrowest, {}][0]))}"


def _written(selector: Selector) -> Value:
    """Return a selector as the file has it: a path stands for itself."""
    return selector.get("path", selector)


# ── the file ──────────────────────────────────────────────────────────────────────────────────────


def _expose(proposal: Proposal) -> dict[str, Value]:
    expose: dict[str, Value] = {}
    kind, path = proposal.kind, _PATHS.get(proposal.kind, "")
    subsystem = subsystem_of_usb_kind(kind) if proposal.discover == "usb" else ""
    if subsystem:
        expose["deviceNodes"] = [subsystem]
    if path:
        wanted = [_wanted_nodes(one, subsystem) for one in proposal.devices]
        is_folder = path.endswith("{index}") and any(len(nodes) > 1 for nodes in wanted)
        expose["containerPath"] = f"{path}/" if is_folder else path
    if kind in _VARIABLES:
        expose["env"] = {_VARIABLES[kind]: "{containerPaths}"}
    if kind == "vf" and proposal.discover == "pci":
        expose["env"] = {pcidevice_variable(proposal.name): "{pciAddresses}"}
    return expose


def _wanted_nodes(found: Found, subsystem: str) -> list[str]:
    return [one.host_path for one in found.nodes if not one.is_shared and subsystem in {"", one.subsystem}]


def proposed_text(proposals: Sequence[Proposal]) -> str:
    """Return the configuration that has these resources, as a file with comments."""
    text = _HEAD
    for number, one in enumerate(proposals):
        text += "\n" if number else ""
        about = _ABOUT.get(one.kind) or one_line(
            str(one.devices[0].facts.get("model", "")), MODEL_LIMIT_BYTES
        )
        if one.discover != "path":
            names = [found.name for found in one.devices]
            more = f" and {len(names) - NAMES_LIMIT} more" if len(names) > NAMES_LIMIT else ""
            about = f"{about}: " if about else ""
            about += f"{', '.join(names[:NAMES_LIMIT])}{more}"
        lines = yaml_text([one.value()]).splitlines()
        text += "".join(f"  {line}\n" for line in [*([f"# {about}"] if about else []), *lines])
    return text
