"""The importer for NVIDIA's k8s-device-plugin: its configuration (version v1) as resources of ours. Pure.

NVIDIA:api/config/v1/config.go:81-95 ignores `resources`, and `rename` and `devices` below `sharing`: what it
ignores changes nothing here either, and is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.daemon.importers.draft import Draft, Fields, Remarks, items_of, text_of
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.daemon.importers.draft import At
    from devplug.k8s.yaml import Value

NVIDIA: Final = "NVIDIA's plugin"

_PREFIX: Final = "nvidia.com/"
_GPU: Final = f"{_PREFIX}gpu"
_MIG: Final = re.compile(r"nvidia\.com/mig-([0-9]+g\.[0-9]+gb)((?:\.[a-z]+)*)")
"""NVIDIA:internal/rm/rm.go:140-147: mig- and the profile, with `+` written as `.`."""

_UNNEEDED: Final = ("mpsRoot", "useNodeFeatureAPI", "gfd")
_UNNEEDED_OF_PLUGIN: Final = ("cdiAnnotationPrefix", "nvidiaCTKPath", "containerDriverRoot")
_VARIABLES: Final = {
    "gdrcopyEnabled": "NVIDIA_GDRCOPY",
    "gdsEnabled": "NVIDIA_GDS",
    "mofedEnabled": "NVIDIA_MOFED",
}
"""The variable that each switch sets to `enabled` (NVIDIA:internal/plugin/server.go:339-347)."""


@dataclass(slots=True)
class _Wish:
    """What the file says of all resources together."""

    mig: str = "none"
    mig_at: At | None = None
    fails: bool = False
    has_spec: bool = False
    is_packed: bool = False
    env: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Sharing:
    """What the file says of sharing one resource."""

    at: At
    replicas: int
    is_renamed: bool
    takes_one: bool


def nvidia_drafts(config: At, remarks: Remarks) -> Iterator[Draft]:
    """Yield the resource of whole GPUs, and one for each MIG profile that the file names."""
    fields = Fields(config, remarks, NVIDIA)
    fields.take("version")
    if (at := fields.take("resources")) is not None and (named := _entries(at, ("gpus", "mig"))):
        message = (
            "NVIDIA's plugin ignores this; here it is a resource of that name with discover.nvidia.model or "
            ".mig; left out"
        )
        remarks.note(named, message)
    if (at := fields.take("imex")) is not None and (channels := _entries(at, ("channelIDs",))):
        remarks.warn(channels, "IMEX channels are not given out here; left out")
    wish = _wish(fields.take("flags"), remarks)
    sharings = _sharings(fields.take("sharing"), wish, remarks)
    fields.rest()
    if wish.mig_at is not None:
        _remark_mig(wish, wish.mig_at, len(sharings.keys() - {_GPU}), remarks)
    for name in (_GPU, *(name for name in sharings if name != _GPU)):
        yield _draft(config, name, wish, sharings.get(name))


def _entries(at: At, keys: Iterable[str]) -> At | None:
    """Return the first of these lists that has an entry."""
    fields = Fields(at, Remarks(), NVIDIA)
    return next((one for key in keys if items_of(one := fields.take(key)) and one is not None), None)


# ── flags ─────────────────────────────────────────────────────────────────────────────────────────


def _wish(at: At | None, remarks: Remarks) -> _Wish:
    wish = _Wish()
    if at is None:
        return wish
    fields = Fields(at, remarks, NVIDIA)
    wish.mig_at = fields.take("migStrategy")
    wish.mig = text_of(wish.mig_at) or "none"
    wish.fails = bool(fields.flag("failOnInitError"))
    for key in ("nvidiaDriverRoot", "nvidiaDevRoot"):
        root = fields.take(key)
        if root is not None and text_of(root) not in {None, "", "/", "/run/nvidia/driver"}:
            message = (
                "the driver is looked for in /, and its library in /run/nvidia/driver, too; run devplug with "
                "runtimeClassName: nvidia if it is elsewhere; left out"
            )
            remarks.warn(root, message)
    strategy = fields.take("deviceDiscoveryStrategy")
    if strategy is not None and text_of(strategy) not in {None, "auto", "nvml"}:
        remarks.warn(strategy, "only GPUs that NVML knows are found here, and no Tegra; left out")
    for key, variable in _VARIABLES.items():
        if fields.flag(key):
            wish.env[variable] = "enabled"
    if (plugin := fields.take("plugin")) is not None:
        _take_plugin_flags(wish, Fields(plugin, remarks, NVIDIA), remarks)
    _remark_unneeded(fields, _UNNEEDED, remarks)
    fields.rest()
    return wish


def _take_plugin_flags(wish: _Wish, fields: Fields, remarks: Remarks) -> None:
    at = fields.take("deviceListStrategy")
    strategies = {text_of(one) for one in items_of(at)} or {text_of(at) or "envvar"}
    if at is not None and any((one or "").startswith("cdi-") for one in strategies):
        wish.has_spec = True
        message = (
            "the CDI spec must be there: run nvidia-ctk cdi generate --device-name-strategy=uuid on the "
            "machine, for no spec is written here, as NVIDIA's plugin does"
        )
        remarks.note(at, message)
    elif at is not None and "volume-mounts" in strategies:
        message = (
            "GPUs are named in NVIDIA_VISIBLE_DEVICES here; let NVIDIA's runtime accept that "
            "(accept-nvidia-visible-devices-envvar-when-unprivileged), or use CDI; left out"
        )
        remarks.warn(at, message)
    passing = fields.take("passDeviceSpecs")
    if passing is not None and text_of(passing) == "false" and not wish.has_spec:
        remarks.note(passing, "the GPUs' device nodes are always given, too")
    ids = fields.take("deviceIDStrategy")
    if ids is not None and text_of(ids) == "index":
        remarks.note(ids, "containers see UUIDs in NVIDIA_VISIBLE_DEVICES, and no indexes")
    wish.is_packed = fields.text("sharedDevicesAllocationPolicy") == "packed"
    _remark_unneeded(fields, _UNNEEDED_OF_PLUGIN, remarks)
    fields.rest()


def _remark_unneeded(fields: Fields, keys: Iterable[str], remarks: Remarks) -> None:
    for key in keys:
        if (at := fields.take(key)) is not None and text_of(at) != "":
            what = "labels are made by NVIDIA's GPU feature discovery, which can stay" if key == "gfd" else ""
            remarks.note(at, f"{what or 'is not needed here'}; left out")


def _remark_mig(wish: _Wish, at: At, profiles: int, remarks: Remarks) -> None:
    if wish.mig == "single":
        message = (
            "the file does not say which MIG profile the GPUs have; if they have one, write discover: "
            "{nvidia: {mig: PROFILE}}, as in 1g.10gb; the resource here has whole GPUs only"
        )
        remarks.warn(at, message)
    elif wish.mig == "mixed":
        message = (
            f"a resource is here for {profiles or 'none'} of the MIG profiles; for each that the GPUs have "
            "write one named nvidia.com/mig-PROFILE with discover: {nvidia: {mig: PROFILE}}, as in 1g.10gb"
        )
        remarks.warn(at, message)
    elif wish.mig != "none":
        remarks.warn(at, f"{quoted(wish.mig)} is neither none, single nor mixed; left out")


# ── sharing ───────────────────────────────────────────────────────────────────────────────────────


def _sharings(at: At | None, wish: _Wish, remarks: Remarks) -> dict[str, _Sharing]:
    """Return what the file says of sharing, by the resource name before a renaming."""
    if at is None:
        return {}
    fields = Fields(at, remarks, NVIDIA)
    mps, slicing = fields.take("mps"), fields.take("timeSlicing")
    fields.rest()
    if mps is not None:  # NVIDIA:api/config/v1/sharing.go:47-53: it goes before timeSlicing
        message = (
            "MPS needs NVIDIA's control daemon and limits memory, which nothing here does; share.replicas "
            "shares by time; left out, so that each GPU goes to one container"
        )
        remarks.warn(mps, message)
        return {}
    if slicing is None:
        return {}
    slices = Fields(slicing, remarks, NVIDIA)
    is_renamed = bool(slices.flag("renameByDefault"))
    takes_one = bool(slices.flag("failRequestsGreaterThanOne"))
    found: dict[str, _Sharing] = {}
    for entry in slices.items("resources"):
        one = Fields(entry, remarks, NVIDIA)
        written = one.text("name")
        name = written if written.startswith(_PREFIX) else _PREFIX + written
        replicas = one.number("replicas", 1)
        rename, devices = one.take("rename"), one.take("devices")
        one.rest()
        ignored = "NVIDIA's plugin ignores this; left out"
        if rename is not None and text_of(rename) not in {None, "", f"{name}.shared" if is_renamed else ""}:
            remarks.note(rename, f"{ignored}; here a rename is another name of the resource")
        if devices is not None and text_of(devices) != "all":
            remarks.note(devices, f"{ignored}; here discover.nvidia.uuid chooses GPUs")
        if name != _GPU and not (_MIG.fullmatch(name) and wish.mig == "mixed"):
            remarks.warn(entry, f"NVIDIA's plugin has no resource {quoted(name)} with these flags; left out")
        elif replicas < 2:  # NVIDIA:api/config/v1/replicas.go:251-253
            remarks.warn(
                entry, "has fewer than 2 replicas, with which NVIDIA's plugin does not start; left out"
            )
        else:
            found.setdefault(name, _Sharing(entry, replicas, is_renamed, takes_one))
    slices.rest()
    return found


# ── the resources ─────────────────────────────────────────────────────────────────────────────────


def _draft(config: At, name: str, wish: _Wish, sharing: _Sharing | None) -> Draft:
    at = sharing.at if sharing else config
    found = _MIG.fullmatch(name)
    selector: Value = {"mig": found[1] + found[2].replace(".", "+", 1)} if found else {}
    draft = Draft(at, name, "nvidia", [(selector, at)])
    if wish.has_spec:
        draft.expose = {"deviceNodes": [], "cdiDevices": [f"{_GPU}={{uuid}}"]}
    if wish.env:
        draft.expose["env"] = wish.env
    if sharing:
        draft.name += ".shared" if sharing.is_renamed else ""
        draft.share["replicas"] = sharing.replicas
        if sharing.takes_one:
            draft.share["maxPerContainer"] = 1
    if wish.is_packed and (sharing or found):
        draft.others["prefer"] = "packed"
    if wish.fails:
        draft.others["whenNone"] = "fail"
    return draft
