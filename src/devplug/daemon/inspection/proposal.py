"""A proposed configuration for a machine's devices, and the selectors that find each. Pure.

Selectors are tried on everything that the source finds: they match the wanted devices and no others.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.daemon.config.globs import has_wildcard, regex_fault
from devplug.daemon.container_response import pcidevice_variable
from devplug.daemon.inspection.device_kinds import subsystem_of_usb_kind
from devplug.errors import one_line
from devplug.k8s.yaml import flow, yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.daemon.inspection.device_kinds import NamedDevice, Survey
    from devplug.daemon.sources.device import HostDevice
    from devplug.k8s.yaml import Value

Selector: TypeAlias = "Mapping[str, str | Mapping[str, str]]"
"""One selector of a kind of discovery, with the keys of the file."""

_DIGITS: Final = re.compile(r"\d+")

_FACTS: Final = {
    ("usb", "vendor"): "attr.idVendor",
    ("usb", "product"): "attr.idProduct",
    ("", "vendor"): "attr.vendor",
    ("", "device"): "attr.device",
    ("", "class"): "attr.class",
    ("", "driver"): "attr.driver",
    ("", "address"): "pciAddress",
    ("", "path"): "hostPath",
    ("pci", "virtualFunctionOf"): "attr.physfn",
    ("net", "virtualFunctionOf"): "attr.pf",
}
"""The fact that a key of a selector is compared with, by kind of discovery and key; "" is any kind."""

_HEX_FACTS: Final = frozenset({"attr.idVendor", "attr.idProduct", "attr.vendor", "attr.device", "attr.class"})

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
"""The container path of the nodes of a kind; kinds that are not here keep the host's paths."""

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


# ── selectors ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _SourceView:
    """The devices that one source finds, and which of them a selector would match."""

    discover: str
    subsystem: str
    survey: Survey

    @property
    def seen(self) -> Sequence[HostDevice]:
        """All devices that the source finds."""
        if self.discover == "sysfs":
            return self.survey.sysfs[self.subsystem]
        survey = self.survey
        found = {"nvidia": survey.nvidia, "net": survey.net, "usb": survey.usb, "pci": survey.pci}
        return found.get(self.discover, survey.paths)

    def exact(
        self, candidates: Iterable[Sequence[Selector]], devices: Sequence[HostDevice]
    ) -> tuple[Selector, ...]:
        """Return the first selectors that find these devices and no others; none if there are no such."""
        wanted = {one.name for one in devices}
        for selectors in candidates:
            found = {one.name for one in self.seen if any(self.finds(each, one) for each in selectors)}
            if all(selectors) and found == wanted:
                return tuple(selectors)
        return ()

    def finds(self, selector: Selector, found: HostDevice) -> bool:
        """Whether a selector finds a device that its source sees."""
        if self.discover == "nvidia" and self._value_of("mig", found) != selector.get("mig", ""):
            return False
        return all(self._fits(key, wanted, found) for key, wanted in selector.items())

    def _fits(self, key: str, wanted: str | Mapping[str, str], found: HostDevice) -> bool:
        if not isinstance(wanted, str):
            return all(found.facts.get(f"attr.{name}") == text for name, text in wanted.items())
        value = self._value_of(key, found)
        if key == "class":
            return value.startswith(wanted)
        return fnmatchcase(value, wanted) if key == "name" else value == wanted

    def _value_of(self, key: str, found: HostDevice) -> str:
        """Return a device's value for a key of its source's selectors; empty if it has none."""
        match self.discover, key:
            case _, "subsystem":
                return self.subsystem
            case "sysfs", "name":
                return found.hardware.rpartition("/")[2]
            case "nvidia", "mig":
                return self.survey.mig_profiles.get(str(found.facts.get("uuid", "")), "")
        fact = _FACTS.get((self.discover, key)) or _FACTS.get(("", key), key)
        text = str(found.facts.get(fact, ""))
        return text.lower().removeprefix("0x") if fact in _HEX_FACTS else text

    def candidates(self, kind: str, devices: Sequence[HostDevice]) -> Iterator[list[Selector]]:
        """Yield selectors for these devices, those that say most of their kind first, the narrowest last."""
        match self.discover:
            case "path":
                yield self._each(devices, "path")
            case "usb":
                yield self._each(devices, "vendor", "product")
                yield self._each(devices, "vendor", "product", "serial")
            case "nvidia":
                yield self._each(devices, "mig", "model")
                yield self._each(devices, "mig", "uuid")
            case "pci":
                if kind == "vf":
                    yield self._each(devices, "virtualFunctionOf", "driver")
                if kind in {"fpga", "accelerator"}:
                    yield [
                        {**one, "class": str(one["class"])[:4]}
                        for one in self._each(devices, "class", "driver")
                    ]
                yield self._each(devices, "vendor", "device", "driver")
                yield self._each(devices, "address")
            case "net":
                if kind == "vf":
                    yield self._each(devices, "virtualFunctionOf")
                    yield self._each(devices, "virtualFunctionOf", "driver")
                yield self._each(devices, "interface")
                yield self._each(devices, "address")
            case _:
                yield from self._sysfs_candidates(devices)

    def _sysfs_candidates(self, devices: Sequence[HostDevice]) -> Iterator[list[Selector]]:
        yield self._each(devices, "subsystem")
        if self.subsystem == "video4linux":
            yield [{"subsystem": self.subsystem, "attributes": {"index": "0"}}]
        named = self._each(devices, "subsystem", "name")
        stems = list(dict.fromkeys(_DIGITS.sub("*", str(one["name"])) for one in named))
        yield [{"subsystem": self.subsystem, "name": stem} for stem in stems]
        drivers = sorted({str(one.facts.get("attr.driver", "")) for one in devices})
        if all(drivers):
            yield [
                {"subsystem": self.subsystem, "name": stem, "attributes": {"driver": driver}}
                for stem in stems
                for driver in drivers
            ]
        yield named

    def _each(self, devices: Iterable[HostDevice], *keys: str) -> list[Selector]:
        """Return a selector for each of the devices, of what they have for these keys; equal ones once."""
        selectors: list[Selector] = []
        for one in devices:
            values = {key: self._value_of(key, one) for key in keys}
            selector = {key: text for key, text in values.items() if text and _stands_for_itself(key, text)}
            if selector not in selectors:
                selectors.append(selector)
        return selectors


def _stands_for_itself(key: str, text: str) -> bool:
    """Whether a text, in a selector where most are globs, matches only itself."""
    if key == "virtualFunctionOf":
        return len(text) == len("0000:00:00.0")  # domains behind Intel's VMD are longer
    return not (has_wildcard(text) or regex_fault(text))


# ── the configuration ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Proposal:
    """One resource that could be served on a machine."""

    name: str
    kind: str
    discover: str
    selectors: tuple[Selector, ...]
    devices: tuple[HostDevice, ...]

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


def proposals_of(sights: Iterable[NamedDevice], survey: Survey) -> tuple[Proposal, ...]:
    """Return a resource for each kind of device that is not hidden, in the order of `sights`."""
    groups: dict[tuple[str, str, str], list[HostDevice]] = {}
    for sight in sights:
        if sight.kind:
            groups.setdefault((sight.kind, sight.discover, sight.subsystem), []).append(sight.found)
    count_of: Counter[str] = Counter()
    proposals = []
    for (kind, discover, subsystem), devices in groups.items():
        view = _SourceView(discover, subsystem, survey)
        if selectors := view.exact(view.candidates(kind, devices), devices):
            count_of[kind] += 1
            suffix = "" if count_of[kind] == 1 else f"-{subsystem or discover}"
            name = f"{DOMAIN}/{kind}{suffix}"
            proposals.append(Proposal(name, kind, discover, selectors, tuple(devices)))
    return tuple(proposals)


def finder_of(sight: NamedDevice, proposals: Iterable[Proposal], survey: Survey) -> str:
    """Return the selector that finds a device, the proposed one if there is: `usb: {vendor: "0403"}`."""
    view = _SourceView(sight.discover, sight.subsystem, survey)
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


def _wanted_nodes(found: HostDevice, subsystem: str) -> list[str]:
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
