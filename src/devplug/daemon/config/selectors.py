"""What a resource can be made of: one type per kind under `discover`, each field with its default in words.

Types only. Values are as the file has them, already checked for type and range by `decoder`.
"""

# Without `from __future__ import annotations`: msgspec would evaluate every text twice, 25 ms at each start.

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})
"""The default of a map from names to texts: none."""

_NO_NUMBERS: Final[Mapping[str, int]] = MappingProxyType({})

# Patterns are in `extra`, since msgspec would compile its own at each start.
Hex2 = Annotated[str, Meta(extra={"pattern": "^[0-9a-fA-F]{2}$", "words": '2 hex digits, as in "0e"'})]
Hex4 = Annotated[str, Meta(extra={"pattern": "^[0-9a-fA-F]{4}$", "words": '4 hex digits, as in "0403"'})]
PciClass = Annotated[
    str,
    Meta(extra={"pattern": "^([0-9a-fA-F]{2}){1,3}$", "words": '2, 4 or 6 hex digits, as in "1200"'}),
]
PciAddress = Annotated[
    str,
    Meta(
        extra={
            "pattern": r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$",
            "words": 'a PCI address, as in "0000:3b:00.0"',
        }
    ),
]
MigProfile = Annotated[
    str,
    Meta(
        extra={
            "pattern": r"^(none|([0-9]+c\.)?[0-9]+g\.[0-9]+gb(\+[a-z.]+)?)$",
            "words": "none or a profile, as in 1g.10gb",
        }
    ),
]


def key_in_file(field: str) -> str:
    """Return the key of a field: camelCase, without the unit and without Python's `_` after a keyword."""
    first, *rest = field.removesuffix("_").removesuffix("_seconds").split("_")
    return first + "".join(word.capitalize() for word in rest)


class Section(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename=key_in_file,
):
    """A map of the file: its keys are the fields in camelCase. Frozen."""

    shorthand: ClassVar[str] = ""
    """The field that a plain text stands for, where a text may stand instead of the map."""
    alternatives: ClassVar[tuple[str, ...]] = ()
    """Fields of which exactly one must be given."""
    at_least_one: ClassVar[tuple[str, ...]] = ()
    """Fields of which at least one must be given: without any of them everything would match."""


class PathSelector(Section, frozen=True, kw_only=True):
    """Device nodes by path: each node found is a device."""

    shorthand: ClassVar[str] = "glob"

    glob: Annotated[str, Meta(description="Path of device nodes below /dev; may have *, ? and [...].")]
    exclude: Annotated[
        tuple[str, ...],
        Meta(description="Globs of nodes to leave out. Default: none."),
    ] = ()


class BundlePath(Section, frozen=True, kw_only=True):
    """One device node of a bundle."""

    shorthand: ClassVar[str] = "path"

    path: Annotated[str, Meta(description="Path of one device node; no glob.")]
    name: Annotated[
        str | None,
        Meta(description="Name for {containerPath.NAME} in templates. Default: the file name."),
    ] = None
    optional: Annotated[
        bool,
        Meta(description="Whether the device is there without this node. Default: false."),
    ] = False


class BundleSelector(Section, frozen=True, kw_only=True):
    """Several device nodes that are one device together."""

    paths: Annotated[
        tuple[BundlePath, ...],
        Meta(description="The nodes: each a path, or a map with path, name and optional.", min_length=1),
    ]


class UsbSelector(Section, frozen=True, kw_only=True):
    """USB devices: each is one device, also if several are identical."""

    at_least_one: ClassVar[tuple[str, ...]] = ("vendor", "product", "serial", "interface_class")

    vendor: Annotated[
        Hex4 | None,
        Meta(description='Vendor ID: 4 hex digits in quotes, as in "0403". Default: any.'),
    ] = None
    product: Annotated[
        Hex4 | None,
        Meta(description='Product ID: 4 hex digits in quotes, as in "6001". Default: any.'),
    ] = None
    serial: Annotated[str | None, Meta(description="Glob of the serial number. Default: any.")] = None
    interface_class: Annotated[
        Hex2 | None,
        Meta(description='Class of one of its interfaces: 2 hex digits, as in "0e" for video. Default: any.'),
    ] = None


class PciSelector(Section, frozen=True, kw_only=True):
    """PCI functions: each is one device."""

    at_least_one: ClassVar[tuple[str, ...]] = (
        "vendor",
        "device",
        "subsystem_vendor",
        "subsystem_device",
        "class_",
        "driver",
        "address",
        "virtual_function_of",
    )

    vendor: Annotated[
        Hex4 | None,
        Meta(description='Vendor ID: 4 hex digits in quotes, as in "8086". Default: any.'),
    ] = None
    device: Annotated[
        Hex4 | None,
        Meta(description='Device ID: 4 hex digits in quotes, as in "09c4". Default: any.'),
    ] = None
    subsystem_vendor: Annotated[
        Hex4 | None,
        Meta(description="Subsystem vendor ID: 4 hex digits in quotes. Default: any."),
    ] = None
    subsystem_device: Annotated[
        Hex4 | None,
        Meta(description="Subsystem device ID: 4 hex digits in quotes. Default: any."),
    ] = None
    class_: Annotated[
        PciClass | None,
        Meta(description='Class: its first 2, 4 or 6 hex digits in quotes, as in "1200". Default: any.'),
    ] = None
    driver: Annotated[
        str | None,
        Meta(description="Glob of the driver's name, as in vfio-pci. Default: any, or none."),
    ] = None
    address: Annotated[
        str | None,
        Meta(description='Glob of the address, as in "0000:3b:00.*". Default: any.'),
    ] = None
    virtual_function_of: Annotated[
        PciAddress | None,
        Meta(description="Address of a physical function; only its virtual functions match. Default: any."),
    ] = None


class SysfsSelector(Section, frozen=True, kw_only=True):
    """Anything that the kernel lists under a subsystem in /sys."""

    subsystem: Annotated[str, Meta(description="Name of the subsystem, as in video4linux.", min_length=1)]
    name: Annotated[str | None, Meta(description="Glob of the name in sysfs. Default: any.")] = None
    attributes: Annotated[
        Mapping[str, str],
        Meta(description="Glob of each attribute, the device's own or its nearest parent's. Default: any."),
    ] = NO_TEXTS


class NetSelector(Section, frozen=True, kw_only=True):
    """Network interfaces: each is one device."""

    at_least_one: ClassVar[tuple[str, ...]] = ("interface", "driver", "address", "virtual_function_of")

    interface: Annotated[str | None, Meta(description="Glob of the interface name. Default: any.")] = None
    driver: Annotated[str | None, Meta(description="Glob of the driver's name. Default: any.")] = None
    address: Annotated[str | None, Meta(description="Glob of the PCI address. Default: any.")] = None
    virtual_function_of: Annotated[
        PciAddress | None,
        Meta(
            description="PCI address of a physical function; only its virtual functions match. Default: any."
        ),
    ] = None


class NvidiaSelector(Section, frozen=True, kw_only=True):
    """NVIDIA GPUs, or their MIG instances."""

    model: Annotated[str | None, Meta(description="Glob of the model name. Default: any.")] = None
    uuid: Annotated[str | None, Meta(description="Glob of the UUID. Default: any.")] = None
    mig: Annotated[
        MigProfile,
        Meta(description="Whole GPUs (none), or MIG instances of one profile, as in 1g.10gb. Default: none."),
    ] = "none"
    ignore_xids: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=1023)], ...] | None,
        Meta(description="Xid errors that say nothing about health. Default: those of applications."),
    ] = None


class StaticSelector(Section, frozen=True, kw_only=True):
    """Devices without hardware, for tests: the IDs are all there is."""

    ids: Annotated[tuple[str, ...], Meta(description="The device IDs.", min_length=1)]
    numa_nodes: Annotated[
        Mapping[str, Annotated[int, Meta(ge=-1, le=1023)]],
        Meta(description="NUMA node of each ID; -1 means none. Default: none."),
    ] = _NO_NUMBERS


class Discover(Section, frozen=True, kw_only=True):
    """What makes the devices: exactly one kind, with one selector or a list of which any may match."""

    alternatives: ClassVar[tuple[str, ...]] = (
        "path",
        "bundle",
        "usb",
        "pci",
        "sysfs",
        "net",
        "nvidia",
        "static",
    )

    path: Annotated[
        tuple[PathSelector, ...],
        Meta(
            description="Device nodes by path: a path, a glob, or a map with glob and exclude.",
            extra={"or_one": True},
        ),
    ] = ()
    bundle: Annotated[
        tuple[BundleSelector, ...],
        Meta(description="Several device nodes as one device.", extra={"or_one": True}),
    ] = ()
    usb: Annotated[tuple[UsbSelector, ...], Meta(description="USB devices.", extra={"or_one": True})] = ()
    pci: Annotated[tuple[PciSelector, ...], Meta(description="PCI functions.", extra={"or_one": True})] = ()
    sysfs: Annotated[
        tuple[SysfsSelector, ...],
        Meta(description="Devices of a kernel subsystem.", extra={"or_one": True}),
    ] = ()
    net: Annotated[
        tuple[NetSelector, ...],
        Meta(description="Network interfaces.", extra={"or_one": True}),
    ] = ()
    nvidia: Annotated[
        tuple[NvidiaSelector, ...],
        Meta(description="NVIDIA GPUs.", extra={"or_one": True}),
    ] = ()
    static: Annotated[
        tuple[StaticSelector, ...],
        Meta(description="Devices without hardware, for tests.", extra={"or_one": True}),
    ] = ()

    @property
    def kind(self) -> Literal["path", "bundle", "usb", "pci", "sysfs", "net", "nvidia", "static", ""]:
        """The one kind that is given; empty only while a file is being checked."""
        given = [kind for kind in self.alternatives if getattr(self, kind)]
        return given[0] if len(given) == 1 else ""  # type: ignore[return-value]  # one of its own fields
