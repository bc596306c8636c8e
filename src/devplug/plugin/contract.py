"""The contract of plugins: the class `DevicePlugin` that an author writes, and the check that it is kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.devices import ContainerResponse, Device
from devplug.errors import PluginError, quoted
from devplug.k8s.resource_names import resource_name_fault
from devplug.wire.values import PluginOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Collection, Iterable, Iterator, Sequence


Snapshot: TypeAlias = "Collection[Device]"
"""All devices of a plugin at one moment: the complete list, not a difference."""


class DevicePlugin:
    """A device plugin for one resource name: subclass it, set `resource_name`, write `devices`.

    An instance lives as long as the program serves it. Two rules hold for every method. *A list that is
    returned is final; a list that is yielded replaces the one before.* *`async def` runs on the event loop
    and must not block; `def` runs in a thread and may.* `allocate` and `prefer` of one plugin never overlap;
    `pre_start` may.
    """

    resource_name: str
    """What pods write under `limits`, as `vendor.com/kind`. Required."""

    allocate_timeout_seconds: float = 5
    """How long `prepare` and `allocate` may take together. The kubelet itself waits for ever meanwhile, and
    admits no other pod of the node."""

    pre_start_timeout_seconds: float = 20
    """How long `pre_start` may take. The kubelet gives up after 30 s (endpoint.go)."""

    clean_up_timeout_seconds: float = 30
    """How long `clean_up` may take. An Allocate of the device waits for it."""

    def devices(self) -> Snapshot | Iterator[Snapshot] | Awaitable[Snapshot] | AsyncIterable[Snapshot]:
        """Return the devices, or yield them again whenever they change. Required.

        An equal list sends nothing, so polling is safe. An id that a pod may hold stays listed as Unhealthy
        after it is dropped. If this fails before the first list, `run` raises; later the list stands and
        this is called again.
        """
        raise PluginError(f"{type(self).__name__} has no method `devices`")

    if TYPE_CHECKING:
        # The default is `async def`, which costs no thread; to type checkers a plain `def` must be as good.
        def allocate(
            self,
            devices: Sequence[Device],
            /,
        ) -> ContainerResponse | Awaitable[ContainerResponse]:
            """Return what the container gets; see below."""

    else:

        async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
            """Return what the container gets that these devices are given to: their device nodes, by default.

            May be a plain `def` too. It may be asked twice for the same devices, and its answer lasts for
            the container's life: no side effects. To refuse, raise `AllocationError` or
            `UnhealthyDeviceError`: the pod then fails for good, with that text in its status.

            All devices are healthy, but for one case: with `dra` a claim may tolerate the taint of an
            Unhealthy device, and gets it as it is. Then `device.health` is not `Health.healthy()`, and its
            `reason` says why; so in `prepare` before it.
            """
            return ContainerResponse.of(devices)

    def prefer(
        self,
        available: Sequence[Device],
        must_include: Sequence[Device],
        size: int,
        /,
    ) -> Iterable[Device] | Awaitable[Iterable[Device]]:
        """Rank the available devices, best first, within 1 s; optional.

        `must_include` is put in front and the rest is cut to `size` afterwards, so an answer cannot be wrong.
        """
        raise NotImplementedError

    def prepare(self, devices: Sequence[Device], /) -> Awaitable[None] | None:
        """Prepare the hardware once per Allocate, before `allocate`; optional.

        It must be safe to repeat: program a bitstream, make a file.
        """
        raise NotImplementedError

    def pre_start(self, devices: Sequence[Device], /) -> Awaitable[None] | None:
        """Prepare the device before every start of the container, as by a reset; optional.

        Raising keeps the container waiting; the kubelet tries again, for ever.
        """
        raise NotImplementedError

    def clean_up(self, device: Device, /) -> Awaitable[None] | None:
        """Clean up a device after its last use, before another container gets it; optional.

        It is called once PodResources no longer lists the pod that held the device, or the claim was
        released, and again until it succeeds: raising keeps the device Unhealthy, with that text. After a
        restart of the plugin too. Without the kubelet's PodResources socket it is called when the kubelet
        allocates the device again. After an end of the plugin that left no record of who holds what, it is
        called for each device that no container holds.
        """
        raise NotImplementedError

    def release(self, devices: Sequence[Device], /) -> Awaitable[None] | None:
        """Clean up devices that a claim has released; optional, and called only with `dra`.

        Within `allocate_timeout_seconds`. Raising keeps the pod Terminating; the kubelet tries again.
        """
        raise NotImplementedError


_HOOKS: Final = ("devices", "allocate", "prefer", "prepare", "pre_start", "clean_up", "release")
_TIMES: Final = ("allocate_timeout_seconds", "pre_start_timeout_seconds", "clean_up_timeout_seconds")
_FIELDS: Final = ("resource_name", *_TIMES)


def offers(plugin: DevicePlugin, hook: str) -> bool:
    """Whether the plugin's class defines `hook` itself."""
    return getattr(type(plugin), hook) is not getattr(DevicePlugin, hook)


def options_of(plugin: DevicePlugin, *, is_steered: bool = False) -> PluginOptions:
    """Return the options for the kubelet; it is always asked for preferences if `is_steered`."""
    return PluginOptions(
        pre_start_required=offers(plugin, "pre_start"),
        preferred_allocation_available=is_steered or offers(plugin, "prefer"),
    )


def plugin_faults(plugin: DevicePlugin) -> list[str]:
    """Return everything that keeps `plugin` from being served, each in one sentence."""
    name = type(plugin).__name__
    if not _is_plugin(plugin):
        return [f"{quoted(plugin)} is not an instance of devplug.DevicePlugin"]
    faults = []
    resource_name = getattr(plugin, "resource_name", None)
    if resource_name is None:
        faults.append(f'{name} has no resource_name; write resource_name = "example.com/kind"')
    elif fault := resource_name_fault(str(resource_name)):
        faults.append(f"{name}: resource name {quoted(resource_name)} {fault}")
    if not offers(plugin, "devices"):
        faults.append(f"{name} has no method `devices`")
    faults.extend(
        f"{name}: {field} is {getattr(plugin, field)!r}; it must be a number of seconds, more than 0"
        for field in _TIMES
        if not _is_duration(getattr(plugin, field))
    )
    faults.extend(
        f"{name} has `{attribute}`, which nothing calls; did you mean `{meant}`?"
        for attribute in dir(type(plugin))
        if not attribute.startswith("_")
        for meant in _misspelt(plugin, attribute)
    )
    return faults


def _misspelt(plugin: DevicePlugin, attribute: str) -> Iterator[str]:
    """Yield what an attribute of the plugin's class was meant to be, if it can be meant in no other way.

    A name beside the one that it resembles is a helper's, as `device` beside `devices`. So is another form of
    the word, as `released`, and a value that has the name of a method.
    """
    if attribute in {*_HOOKS, *_FIELDS}:
        return
    is_callable = callable(getattr(type(plugin), attribute))
    for hook in _HOOKS:
        is_form = hook != "devices" and attribute in {f"{hook}s", f"{hook}d"}
        if is_callable and not is_form and not offers(plugin, hook) and _is_one_letter_off(attribute, hook):
            yield hook
    for field in _FIELDS:
        is_set = getattr(plugin, field, None) != getattr(DevicePlugin, field, None)
        if not is_callable and not is_set and _is_one_letter_off(attribute, field):
            yield field


def _is_plugin(value: object) -> bool:
    """Whether an author who has no type checker gave an instance, and not the class or something else."""
    return isinstance(value, DevicePlugin)


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _is_one_letter_off(text: str, word: str) -> bool:
    """Whether one letter added, dropped, changed or swapped turns `text` into `word`, capitals aside."""
    text = text.lower()
    return any(
        word
        in {
            start + rest[1:],
            start + rest[1:2] + rest[:1] + rest[2:],
            start + letter + rest[1:],
            start + letter + rest,
        }
        for i in range(len(text) + 1)
        for start, rest, letter in [(text[:i], text[i:], word[i : i + 1])]
    )
