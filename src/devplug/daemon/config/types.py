"""The configuration as typed values: one type per map of the file, each field with its default in words.

Types only: `selectors` has those under `discover`, `loader` makes a `Config` out of a file's text. Lengths of
time are written as people write them (`500ms`, `30s`, `1h30m`, `forever`) and kept as seconds. Pure.
"""

# Without `from __future__ import annotations`: msgspec would evaluate every text twice, 25 ms at each start.

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, Struct

from devplug.daemon.config.selectors import NO_TEXTS, Discover, Section
from devplug.daemon.config.templates import Template
from devplug.k8s.resource_names import ResourceName

FOREVER: Final = math.inf
"""What the word `forever` means, in seconds."""

_DURATION: Final = r"(?a)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?"
_UNITS_MS: Final = (("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_NUMBER: Final = r"(?a)\d{1,9}"
_DAYS: Final = r"(?a)(\d{1,6})d"

RESOURCES_LIMIT: Final = 1_000
"""Most resources in one file; each has a socket, a registration and a stream of its own."""

Permissions = Literal["r", "w", "rw", "rwm"]
"""What a container may do with a device node."""

FileMode = Annotated[
    str,
    Meta(extra={"pattern": "^0[0-7]{3}$", "words": '4 octal digits in quotes, as in "0660"'}),
]

DriverName = Annotated[
    str,
    Meta(
        extra={
            "pattern": r"^(?=.{1,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
            "words": 'a DNS subdomain of at most 63 characters, as in "devices.example.com"',
        }
    ),
]
"""The name of a DRA driver (API: ResourceSlice spec.driver)."""

_DAY: Final = 86_400.0
_NO_TEMPLATES: Final[Mapping[str, Template]] = MappingProxyType({})
_NO_NAMED_TEMPLATES: Final[Mapping[Template, Template]] = MappingProxyType({})


# ── lengths of time ───────────────────────────────────────────────────────────────────────────────


class DurationRange(Struct, frozen=True):
    """Which lengths of time a key takes, both ends included, in seconds."""

    shortest_seconds: float
    longest_seconds: float
    forever: bool = False
    """Whether the word `forever` may stand there too."""

    def fault(self, seconds: float) -> str | None:
        """Return what keeps `seconds` from being in this range, or None."""
        if self.shortest_seconds <= seconds <= self.longest_seconds or (self.forever and seconds == FOREVER):
            return None
        return f"{format_duration(seconds)} is out of range; write {self}"

    def __str__(self) -> str:
        """Return the range in words."""
        ends = f"{format_duration(self.shortest_seconds)} to {format_duration(self.longest_seconds)}"
        return f"{ends}, or forever" if self.forever else ends


def parse_duration(text: str) -> float:
    """Return the seconds that `text` means; raises ValueError with what to write instead."""
    if text == "forever":
        return FOREVER
    if text and (found := re.fullmatch(_DURATION, text)):
        units = zip(found.groups(default="0"), _UNITS_MS, strict=True)
        return sum(int(number) * unit_ms for number, (_, unit_ms) in units) / 1_000
    if re.fullmatch(_NUMBER, text):
        raise ValueError(f"{text} has no unit; write {text}s if seconds are meant")
    if days := re.fullmatch(_DAYS, text):
        raise ValueError(f"{text}: a day has no fixed length; write {int(days.group(1)) * 24}h")
    raise ValueError('is not a duration; write one such as "500ms", "30s" or "1h30m"')


def format_duration(seconds: float) -> str:
    """Return `seconds` as the shortest text that `parse_duration` reads back to the millisecond."""
    if seconds == FOREVER:
        return "forever"
    rest_ms = round(seconds * 1_000)
    text = ""
    for unit, unit_ms in _UNITS_MS:
        number, rest_ms = divmod(rest_ms, unit_ms)
        text += f"{number}{unit}" if number else ""
    return text or "0s"


# ── the maps of the file ──────────────────────────────────────────────────────────────────────────


class ChildNodes(Section, frozen=True, kw_only=True):
    """Some of a device's own nodes: those of a subsystem, or with a file name."""

    shorthand: ClassVar[str] = "subsystem"
    at_least_one: ClassVar[tuple[str, ...]] = ("subsystem", "file")

    subsystem: Annotated[str | None, Meta(description="Kernel subsystem, as in tty. Default: any.")] = None
    file: Annotated[str | None, Meta(description='Glob of the file name, as in "video*". Default: any.')] = (
        None
    )
    name: Annotated[
        str | None,
        Meta(description="Name for {containerPath.NAME} in templates. Default: the subsystem."),
    ] = None
    container_path: Annotated[
        Template | None,
        Meta(description="Path in the container. Default: the resource's containerPath."),
    ] = None
    permissions: Annotated[
        Permissions | None,
        Meta(description="What the container may do. Default: the resource's permissions."),
    ] = None
    optional: Annotated[
        bool,
        Meta(description="Whether the device is there without these nodes. Default: false."),
    ] = False


class ExposedMount(Section, frozen=True, kw_only=True):
    """A host file or folder in the container. Not for device nodes."""

    host_path: Annotated[Template, Meta(description="Absolute path on the host.")]
    container_path: Annotated[
        Template | None,
        Meta(description="Absolute path in the container. Default: the host path."),
    ] = None
    read_only: Annotated[bool, Meta(description="Whether it is read-only there. Default: false.")] = False


class Owner(Section, frozen=True, kw_only=True):
    """The owner of a device node in the container."""

    uid: Annotated[int, Meta(description="User ID.", ge=0, le=2**31 - 1)]
    gid: Annotated[int, Meta(description="Group ID.", ge=0, le=2**31 - 1)]


class Expose(Section, frozen=True, kw_only=True):
    """What a container gets with its devices."""

    device_nodes: Annotated[
        tuple[ChildNodes, ...] | None,
        Meta(description="Which of a device's nodes: subsystems, or maps with file. Default: all it has."),
    ] = None
    container_path: Annotated[
        Template | None,
        Meta(
            description="Path of the node in the container; one that ends in / is a folder for it. "
            "Default: the kernel's path, or the one that discover.path matched.",
        ),
    ] = None
    permissions: Annotated[
        Permissions,
        Meta(description="Read, write; m (mknod) needs allow: [mknod]. Default: rw."),
    ] = "rw"
    cdi_devices: Annotated[
        tuple[Template, ...],
        Meta(description="CDI devices of others, as in vendor.com/class=name. Default: none."),
    ] = ()
    mounts: Annotated[
        tuple[ExposedMount, ...],
        Meta(description="Host files and folders. Default: none."),
    ] = ()
    env: Annotated[
        Mapping[Template, Template],
        Meta(
            description="Environment variables. A name with a variable, as in PORT_{index}, is written once "
            "per device; any other sees all of the container's devices. Default: none.",
        ),
    ] = _NO_NAMED_TEMPLATES
    annotations: Annotated[
        Mapping[str, Template],
        Meta(description="Annotations for the container runtime. Default: none."),
    ] = _NO_TEMPLATES
    strategy: Annotated[
        Literal["deviceNodes", "cdi"],
        Meta(description="How nodes reach the container. Default: deviceNodes."),
    ] = "deviceNodes"
    owner: Annotated[
        Owner | None,
        Meta(description="Owner of the nodes; needs strategy: cdi. Default: as on the host."),
    ] = None
    mode: Annotated[
        FileMode | None,
        Meta(description='Mode of the nodes, as in "0660"; needs strategy: cdi. Default: as on the host.'),
    ] = None
    directories: Annotated[
        tuple[str, ...],
        Meta(description="Folders below /dev that a container gets whole. Default: none."),
    ] = ()


class Share(Section, frozen=True, kw_only=True):
    """How many containers may hold one device."""

    replicas: Annotated[
        int,
        Meta(
            description="How often each device is advertised, as ID::0, ID::1, and so on; with serve: dra "
            "and maxPerContainer: 1, one device with so many shares. Default: 1.",
            ge=1,
        ),
    ] = 1
    max_per_container: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Most devices in one container; more are refused. Default: no limit."),
    ] = None


class HealthCommand(Section, frozen=True, kw_only=True):
    """A command that judges one device: exit code 0 is healthy, 1 is not, any other is unknown."""

    command: Annotated[tuple[Template, ...], Meta(description="The program and its arguments.", min_length=1)]


class HealthRule(Section, frozen=True, kw_only=True):
    """One thing to look at, besides whether the device is present."""

    alternatives: ClassVar[tuple[str, ...]] = ("attribute", "file", "exec", "open")

    attribute: Annotated[str | None, Meta(description="Read this attribute in sysfs.")] = None
    file: Annotated[Template | None, Meta(description="Read this file.")] = None
    exec: Annotated[HealthCommand | None, Meta(description="Run this command.")] = None
    open: Annotated[bool, Meta(description="Open the device node; true is the only value.")] = False
    equals: Annotated[str | None, Meta(description="Glob that the content must match. Default: any.")] = None
    min: Annotated[float | None, Meta(description="Least number that is healthy. Default: any.")] = None
    max: Annotated[float | None, Meta(description="Greatest number that is healthy. Default: any.")] = None
    period_seconds: Annotated[
        float,
        Meta(description="Time between two looks. Default: 10s.", extra={"duration": DurationRange(1, _DAY)}),
    ] = 10.0
    timeout_seconds: Annotated[
        float,
        Meta(
            description="A later answer is unknown. Default: 1s.", extra={"duration": DurationRange(0.1, 60)}
        ),
    ] = 1.0
    failure_threshold: Annotated[
        int,
        Meta(description="Bad looks in a row that make it Unhealthy. Default: 3.", ge=1, le=1000),
    ] = 3
    success_threshold: Annotated[
        int,
        Meta(description="Good looks in a row that make it Healthy again. Default: 1.", ge=1, le=1000),
    ] = 1


class WhenUnplugged(Section, frozen=True, kw_only=True):
    """What becomes of a device that is gone."""

    keep_unhealthy_for_seconds: Annotated[
        float,
        Meta(
            description="How long it stays in the list as Unhealthy, or forever; 0s drops it at once, unless "
            "a pod may hold it. Default: 10m.",
            extra={"duration": DurationRange(0, 7 * _DAY, forever=True)},
        ),
    ] = 600.0


class TimedCommand(Section, frozen=True, kw_only=True):
    """A command for one device."""

    command: Annotated[tuple[Template, ...], Meta(description="The program and its arguments.", min_length=1)]
    timeout_seconds: Annotated[
        float,
        Meta(description="It is killed after this. Default: 30s.", extra={"duration": DurationRange(1, 600)}),
    ] = 30.0


class OnRelease(Section, frozen=True, kw_only=True):
    """What is done once nobody holds a device any more."""

    exec: Annotated[TimedCommand, Meta(description="Run this command.")]


class OnLost(Section, frozen=True, kw_only=True):
    """What is done when a device is gone that a container may hold."""

    exec: Annotated[TimedCommand, Meta(description="Run this command.")]


class Resource(Section, frozen=True, kw_only=True):
    """One resource: what pods ask for, what makes its devices, and what a container gets."""

    name: Annotated[ResourceName, Meta(description="What pods write under limits, as in example.com/serial.")]
    id: Annotated[
        Template | None,
        Meta(description="Device ID. Default: by kind, the serial number, else the address, else the file."),
    ] = None
    serve: Annotated[
        Literal["devicePlugin", "dra"],
        Meta(description="By a device plugin, or by DRA (claims; needs driver). Default: devicePlugin."),
    ] = "devicePlugin"
    discover: Annotated[Discover, Meta(description="What makes the devices; exactly one kind.")]
    expose: Annotated[Expose, Meta(description="What a container gets. Default: the device's nodes.")] = (
        Expose()
    )
    share: Annotated[Share, Meta(description="Sharing. Default: one container per device.")] = Share()
    overlap: Annotated[
        Literal["refuse", "shared"],
        Meta(description="Whether another resource with shared may have the same device. Default: refuse."),
    ] = "refuse"
    health: Annotated[
        tuple[HealthRule, ...],
        Meta(description="Rules besides being present; all must hold. Default: none."),
    ] = ()
    prefer: Annotated[
        Literal["auto", "packed", "spread", "aligned", "leastShared", "linked", "none"],
        Meta(description="Which devices go together if there is a choice. Default: auto."),
    ] = "auto"
    when_none: Annotated[
        Literal["empty", "wait", "fail"],
        Meta(
            description="With no device at start: advertise 0, register later, or exit 1. Default: empty.",
        ),
    ] = "empty"
    when_unplugged: Annotated[
        WhenUnplugged,
        Meta(description="What becomes of a device that is gone. Default: Unhealthy for 10m."),
    ] = WhenUnplugged()
    when_unhealthy: Annotated[
        Literal["keep", "evict"],
        Meta(
            description="Whether pods that hold an Unhealthy device go on, or are evicted; evict needs "
            "serve: dra. Default: keep.",
        ),
    ] = "keep"
    on_release: Annotated[
        OnRelease | None,
        Meta(description="What is done once nobody holds a device any more. Default: nothing."),
    ] = None
    on_lost: Annotated[
        OnLost | None,
        Meta(description="What is done when a device is gone that a container may hold. Default: nothing."),
    ] = None
    node_names: Annotated[
        tuple[str, ...],
        Meta(description="Globs of the machines that have this resource. Default: all."),
    ] = ()
    node_selector: Annotated[
        Mapping[str, str],
        Meta(description="Labels of the machines that have this resource. Default: all."),
    ] = NO_TEXTS
    allow: Annotated[
        tuple[Literal["mknod", "wholeDev", "rawDisks", "hostMounts", "loaderEnv"], ...],
        Meta(description="Dangerous things that this resource may do. Default: none."),
    ] = ()


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    version: Annotated[Literal[1], Meta(description="Version of this format: 1.")]
    driver: Annotated[
        DriverName | None,
        Meta(description="Name of the DRA driver that serves what has serve: dra. Default: there is none."),
    ] = None
    resources: Annotated[
        tuple[Resource, ...],
        Meta(description="The resources of this machine.", min_length=1, max_length=RESOURCES_LIMIT),
    ]
