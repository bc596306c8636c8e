"""Allocate: what the answers hold, and whether a container runtime can use it."""

from __future__ import annotations

import os
import stat
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.conformance.answers import answers, demand_none
from devplug.conformance.response_rules import (
    FileKind,
    annotation_faults,
    cdi_name_faults,
    cdi_names,
    container_path_faults,
    covering_path_faults,
    defined_cdi_names,
    env_faults,
    items,
    loader_envs,
    lost_values,
    mount_host_faults,
    mounted_nodes,
    node_host_faults,
    permission_faults,
)
from devplug.conformance.testbed import once
from devplug.conformance.verdicts import MUST, NOTE, SHOULD, SkippedError, check
from devplug.linux.processes import filled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from devplug.conformance.testbed import TestBed
    from devplug.devices import ContainerResponse

# A host path may be any folder; one with so many entries and no node among them is none of devices.
_ENTRIES_LOOKED_AT = 2000


async def _with(
    bed: TestBed, what: str, get: Callable[[ContainerResponse], object]
) -> Sequence[ContainerResponse]:
    """Return the answers in which `get` finds something; raises `SkippedError` if there is none."""
    found = [response for response in (await once(bed, answers)).values() if get(response)]
    if not found:
        raise SkippedError(f"no response has {what}")
    return found


async def _with_nodes(bed: TestBed) -> Sequence[ContainerResponse]:
    return await _with(bed, "a device node", lambda response: response.device_nodes)


async def _with_mounts(bed: TestBed) -> Sequence[ContainerResponse]:
    return await _with(bed, "a mount", lambda response: response.mounts)


async def _with_envs(bed: TestBed) -> Sequence[ContainerResponse]:
    return await _with(bed, "an environment variable", lambda response: response.envs)


# ── device nodes and mounts ───────────────────────────────────────────────────────────────────────


def _kinds(paths: Iterable[str]) -> Mapping[str, FileKind]:
    return {path: _kind(path) for path in set(paths)}


def _kind(path: str) -> FileKind:
    """Look at a path as a container runtime does, which follows links and takes the nodes of a folder."""
    if not path.startswith("/"):
        return FileKind.NOTHING
    try:
        mode = Path(path).stat().st_mode
    except PermissionError:
        return FileKind.HIDDEN
    except (OSError, ValueError):  # ValueError: a path with NUL
        return FileKind.NOTHING
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return FileKind.NODE
    if not stat.S_ISDIR(mode):
        return FileKind.FILE
    left = _ENTRIES_LOOKED_AT
    for folder, _, names in os.walk(path):
        for name in names:
            left -= 1
            if _kind(f"{folder}/{name}") is FileKind.NODE:
                return FileKind.NODES
        if left <= 0:
            break
    return FileKind.FOLDER


@check(
    "ALL14",
    MUST,
    "The host path of a device node leads to a device node, or to a folder with device nodes.",
    why="the runtime fails the container with `not a device node`, often without the path (containerd#8682)",
    change="look at the path before you give it; it has to be the host's, not that of the plugin's container",
    source="containerd/containerd#8682; internal/cri/opts, WithDevices",
)
async def node_paths_are_nodes(bed: TestBed) -> None:
    """Follow the host paths of all device nodes on this machine."""
    responses = await _with_nodes(bed)
    kinds = _kinds(node.host_path for response in responses for node in response.device_nodes)
    demand_none(chain.from_iterable(node_host_faults(response, kinds) for response in responses))


@check(
    "ALL15",
    MUST,
    "The permissions of a device node are some of r, w and m, each at most once.",
    why="the kubelet does not check them: the container cannot open its device, or does not start",
    change="write `rw`, or `r` for a device that is only read",
    source="v1beta1 api.proto, DeviceSpec",
)
async def permissions_are_permissions(bed: TestBed) -> None:
    """Read the permissions of all device nodes."""
    demand_none(chain.from_iterable(map(permission_faults, await _with_nodes(bed))))


@check(
    "ALL30",
    NOTE,
    "Device nodes are given without permission m.",
    why="m lets the container create device nodes with mknod, which it does not need to use a device",
    change="say `rw` in place of `rwm` or `mrw`",
    source="Documentation/admin-guide/cgroup-v1/devices.rst",
)
async def nobody_may_make_nodes(bed: TestBed) -> None:
    """Look for m in the permissions of all device nodes."""
    nodes = {node for response in await _with_nodes(bed) for node in response.device_nodes}
    demand_none(
        f"{node.container_path} has {node.permissions}"
        for node in sorted(nodes, key=lambda node: node.container_path)
        if "m" in node.permissions
    )


@check(
    "ALL16",
    MUST,
    "A container path is absolute, has neither . nor .. in it, and is used for one thing only.",
    why="the kubelet drops one of two nodes or mounts with the same container path, so a device is missing",
    change="put the device's own name or number into its container path",
    source="pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions",
)
async def container_paths_are_distinct(bed: TestBed) -> None:
    """Compare the container paths of device nodes and mounts, for one device and for two together."""
    responses = await _with(bed, "a path", lambda response: (*response.device_nodes, *response.mounts))
    demand_none(chain.from_iterable(map(container_path_faults, responses)))


@check(
    "ALL17",
    MUST,
    "No device node or mount covers /, /dev or a path below /proc.",
    why="runc refuses mounts below /proc, and the others hide files that every container needs",
    change="use a path of your own, below /dev for devices and /run, /usr or /var for files",
    source="opencontainers/runc libcontainer/rootfs_linux.go, checkProcMount",
)
async def nothing_is_covered(bed: TestBed) -> None:
    """Look at the container paths; the files of /proc that runc lets mounts cover are allowed."""
    responses = await _with(bed, "a path", lambda response: (*response.device_nodes, *response.mounts))
    demand_none(chain.from_iterable(map(covering_path_faults, responses)))


@check(
    "ALL18",
    MUST,
    "The host path of a mount is absolute and exists.",
    why="the runtime makes an empty folder at the path, and the container finds no library or socket there",
    change="give only paths that exist, and list the device as Unhealthy where one is missing",
    source="containerd internal/cri/opts, WithMounts",
)
async def mounts_are_there(bed: TestBed) -> None:
    """Follow the host paths of all mounts on this machine."""
    responses = await _with_mounts(bed)
    kinds = _kinds(mount.host_path for response in responses for mount in response.mounts)
    demand_none(chain.from_iterable(mount_host_faults(response, kinds) for response in responses))


@check(
    "ALL19",
    SHOULD,
    "A device node is given as a device, not as a mount.",
    why="a mount does not let the container open the device, and a right that a hook adds is lost at the "
    "next update of the container's cgroup (NVIDIA/nvidia-container-toolkit#48)",
    change="put the node into `devices` of the response",
    source="v1beta1 api.proto, DeviceSpec; NVIDIA/nvidia-container-toolkit#48",
)
async def nodes_are_no_mounts(bed: TestBed) -> None:
    """Look whether the host path of a mount is a character or block device."""
    responses = await _with_mounts(bed)
    kinds = _kinds(mount.host_path for response in responses for mount in response.mounts)
    demand_none(chain.from_iterable(mounted_nodes(response, kinds) for response in responses))


# ── environment and annotations ───────────────────────────────────────────────────────────────────


@check(
    "ALL20",
    MUST,
    "An environment variable has a name without an equals sign, and neither name nor value has a NUL byte.",
    why="otherwise the runtime refuses the container, or the program sees another variable",
    change="make names of letters, digits and underscores",
    source="environ(7); opencontainers/runtime-spec config.md, process.env",
)
async def variables_are_variables(bed: TestBed) -> None:
    """Read the names and values of all environment variables."""
    demand_none(chain.from_iterable(map(env_faults, await _with_envs(bed))))


@check(
    "ALL21",
    SHOULD,
    "The plugin sets neither PATH nor a variable of the dynamic loader.",
    why="its values replace those of the image, whose programs then do not find what they need",
    change="mount libraries where ldconfig finds them, or name a folder in a variable of your own",
    source="ld.so(8); pkg/kubelet/kubelet_pods.go, a plugin's variables come first",
)
async def loader_is_left_alone(bed: TestBed) -> None:
    """Look for PATH and LD_… among the environment variables."""
    demand_none(chain.from_iterable(map(loader_envs, await _with_envs(bed))))


@check(
    "ALL26",
    NOTE,
    "A variable that differs between two devices names both when one container gets both.",
    why="otherwise the container has two devices and its variable names one",
    change="put the values of all its devices into one variable, with a comma between them",
    source="v1beta1 api.proto, envs is a map",
)
async def both_devices_are_named(bed: TestBed) -> None:
    """Compare the variables of two devices with those of both in one container."""
    given = await once(bed, answers)
    pair = next((ids for ids in given if len(ids) == 2), None)
    if pair is None or (pair[0],) not in given or (pair[1],) not in given:
        raise SkippedError("Allocate gives no two devices both alone and together")
    first, second, both = given[pair[0],], given[pair[1],], given[pair]
    if first.envs == second.envs:
        raise SkippedError(f"{pair[0]} and {pair[1]} have the same variables")
    demand_none(lost_values(first, second, both))


@check(
    "ALL24",
    SHOULD,
    "Annotation keys are valid in Kubernetes, and all annotations take at most 256 KiB.",
    why="runtimes look them up by such keys, and the kubelet's checkpoint holds every byte",
    change="write `your.domain/name`, the name with at most 63 letters, digits, '-', '_' and '.'",
    source="apimachinery pkg/api/validation/objectmeta.go, ValidateAnnotations",
)
async def annotations_are_annotations(bed: TestBed) -> None:
    """Read the keys of all annotations, and add up their sizes."""
    responses = await _with(bed, "an annotation", lambda response: response.annotations)
    demand_none(chain.from_iterable(annotation_faults(response.annotations) for response in responses))


# ── CDI, and all together ─────────────────────────────────────────────────────────────────────────


@check(
    "ALL22",
    MUST,
    "A CDI name has the form vendor/class=device.",
    why="the runtime refuses the container",
    change="write the kind of your spec file, an equals sign, and the device's name in it",
    source="tags.cncf.io/container-device-interface SPEC.md, kind and name; pkg/parser",
)
async def cdi_names_are_names(bed: TestBed) -> None:
    """Read the CDI names of all answers, also those in annotations."""
    demand_none(chain.from_iterable(map(cdi_name_faults, await _with(bed, "a CDI name", cdi_names))))


@check(
    "ALL23",
    SHOULD,
    "Each CDI name is defined in a spec file.",
    why="the runtime fails the container with `unresolvable CDI devices`",
    change="write the spec file before you list the device: under another name first, then rename it",
    source="tags.cncf.io/container-device-interface pkg/cdi, InjectDevices",
)
async def cdi_names_are_defined(bed: TestBed) -> str:
    """Look for the names in the spec files of /etc/cdi and /var/run/cdi, or of the given folders."""
    responses = await _with(bed, "a CDI name", cdi_names)
    names = {
        name for response in responses if not any(cdi_name_faults(response)) for name in cdi_names(response)
    }
    folders = [
        Path(filled(folder, {"{work}": str(bed.root / "work")})) for folder in bed.test_run.subject.cdi_dirs
    ]
    specs = _spec_texts(folders)
    if specs is None:
        raise SkippedError(f"this machine has no folder for CDI ({', '.join(map(str, folders))})")
    undefined = sorted(names - set(defined_cdi_names(specs)))
    demand_none(f"{name} is in no spec file of {', '.join(map(str, folders))}" for name in undefined)
    return f"{len(names)} names in {len(specs)} files"


def _spec_texts(folders: Iterable[Path]) -> Sequence[tuple[str, str]] | None:
    """Return names and texts of all spec files, None if none of the folders is there."""
    present = [folder for folder in folders if folder.is_dir()]
    files = [
        path for folder in present for path in sorted(folder.iterdir()) if path.suffix in {".json", ".yaml"}
    ]
    return [(path.name, path.read_text(errors="replace")) for path in files] if present else None


@check(
    "ALL25",
    NOTE,
    "A response is not empty.",
    why="a container gets nothing from a response without a device node, a CDI name or a variable",
    change="return the device's node, a CDI name, or at least a variable that names the device",
    source="v1beta1 api.proto, ContainerAllocateResponse",
)
async def answers_give_something(bed: TestBed) -> None:
    """Look for answers without a device node, mount, variable, annotation and CDI name."""
    given = await once(bed, answers)
    demand_none(
        f"the answer for {' and '.join(ids)} is empty"
        for ids, response in given.items()
        if not items(response)
    )
