"""Runs a container of a manifest on this machine, with what the manifest grants: needs root, no runtime.

    python -m tests.deploy.security_context --manifest FILE.json --map HOSTPATH=FOLDER … --config-map FOLDER

The manifest is a DaemonSet, or a list with one. Where it says a path of the node, `--map` puts a folder in
its place, for the path and all below it. The image is this Python and this devplug. The container's process
is PID 1 of its namespace and gets our signals; we end as it does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import devplug
from tests.deploy.security_context.grants import Grants, Mount, grants_of
from tests.deploy.security_context.namespaces import Root, drop, mount_below, own_namespaces

NODE_NAME: Final = "granted-node"
FORWARDED: Final = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
TEMPORARY_BYTES: Final = 16 * 2**20
LINKS: Final = ("/bin", "/sbin", "/lib", "/lib64")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.security_context", description=__doc__)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--container")
    parser.add_argument("--map", action="append", default=[], metavar="HOSTPATH=FOLDER")
    parser.add_argument("--config-map", type=Path)
    parser.add_argument("--mount-below", type=Path, metavar="FOLDER", help="what machines have below /dev")
    parser.add_argument("--cgroup", type=Path, help="put the container in this one, which is there already")
    parser.add_argument("--program", help="Python that runs in place of devplug, to see what it may do")
    options = parser.parse_args(arguments)
    pod_spec = _pod_spec(json.loads(options.manifest.read_text()))
    grants = grants_of(pod_spec, NODE_NAME, options.container)
    if grants.user_id != 0 or grants.host_namespaces:
        raise SystemExit("only a container with uid 0 and namespaces of its own is tried")
    places = dict(one.split("=", 1) for one in options.map)
    mounts = [(mount, _source(mount, places, options.config_map)) for mount in grants.mounts]
    signals = {*FORWARDED, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    own_namespaces()
    if options.mount_below:
        mount_below(options.mount_below)
    if (child := os.fork()) == 0:
        if options.cgroup:
            (options.cgroup / "cgroup.procs").write_text("0")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        _become(grants, mounts, options.program)
    return _follow(child, signals)


def _pod_spec(manifest: Any) -> Mapping[str, Any]:
    objects = manifest if isinstance(manifest, list) else manifest.get("items", [manifest])
    (daemon_set,) = (one for one in objects if one["kind"] == "DaemonSet")
    spec: Mapping[str, Any] = daemon_set["spec"]["template"]["spec"]
    return spec


def _source(mount: Mount, places: Mapping[str, str], config_map: Path | None) -> Path | None:
    """Return what is mounted, made if the type says so or it is ours; None for an empty folder."""
    if mount.volume == "configMap":
        if config_map is None:
            raise SystemExit(f"{mount.path} is a ConfigMap: --config-map says what it holds")
        return config_map
    if mount.host_path is None:
        return None
    path = Path(mount.host_path)
    for place in (path, *path.parents):
        if folder := places.get(str(place)):
            path = Path(folder) / path.relative_to(place)
            if not path.exists():
                path.mkdir(parents=True)
            break
    else:
        if mount.kind == "DirectoryOrCreate":
            raise SystemExit(f"{path} would be made on this machine: --map puts a folder in its place")
    if not path.exists():
        raise SystemExit(f"{path} is not there, and the manifest says {mount.kind or 'nothing of that'}")
    return path.resolve()


def _image() -> Iterator[Path]:
    """Yield the folders that this Python and devplug need."""
    folders = {
        Path("/usr"), Path(sys.prefix), Path(sys.base_prefix), Path(devplug.__file__).parent,
        *(path for path in map(Path, LINKS) if not path.is_symlink()),
    }  # fmt: skip
    for folder in sorted(path.resolve() for path in folders if path.exists()):
        if not any(folder != other and folder.is_relative_to(other) for other in folders):
            yield folder


def _become(grants: Grants, mounts: Sequence[tuple[Mount, Path | None]], program: str | None) -> None:
    """Turn this process into the container's; never returns."""
    try:
        image = [*_image()]
        root = Root([*image, *(source for _, source in mounts if source)])
        for folder in image:
            root.bind(folder, str(folder), read_only=True)
        for link in filter(os.path.islink, LINKS):
            root.link(link, str(Path(link).readlink()))
        root.proc()
        if "/sys" not in {mount.path for mount, _ in mounts}:
            root.sys()
        for mount, source in mounts:
            if source is None:
                root.empty(mount.path, TEMPORARY_BYTES, read_only=mount.read_only)
            else:
                root.bind(
                    source,
                    mount.path,
                    read_only=mount.read_only,
                    recursive=mount.recursive,
                    below=not mount.is_sub_path,
                )
        root.nodes()
        root.enter(read_only=grants.read_only_root)
        drop(no_new_privileges=grants.no_new_privileges, filtered=grants.seccomp)
        words = ["-c", program] if program else ["-m", "devplug", *grants.words[grants.has_command :]]
        os.execve(sys.executable, [sys.executable, *words], {"PATH": "/usr/bin:/bin", **grants.environment})
    except BaseException as error:  # noqa: BLE001 -- the child of a fork must not run on in its parent's frames
        sys.stderr.write(f"grants: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(125)


def _follow(child: int, signals: set[signal.Signals]) -> int:
    """Hand signals on until the child has ended; return its exit code, as a shell would."""
    while True:
        number = signal.sigwait(signals)
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
