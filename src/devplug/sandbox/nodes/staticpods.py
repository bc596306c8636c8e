"""The static pods of one node: those in its folder of manifests, and their mirror pods in the API.

They are objects of a registry of the node's own, so that they live on without the API server. After
pkg/kubelet/config (sources, common.go) and pkg/kubelet/pod/mirror_client.go.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.errors import ConfigError, DevplugError, Problem
from devplug.k8s.objects import Object, fields, part, same, text
from devplug.kubelet.manifests import read_manifest
from devplug.linux.inotify import shared_watcher
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.watchlog import EVERYTHING
from devplug.sandbox.registry import NAMESPACES, NODES, PODS, Registry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from devplug.sandbox.api.watchlog import Selection

logger = logging.getLogger(__name__)

_SOURCE: Final = "kubernetes.io/config.source"
_HASH: Final = "kubernetes.io/config.hash"
_MIRROR: Final = "kubernetes.io/config.mirror"


def static_pod(manifest: Mapping[str, object], node_name: str, digest: str) -> Object:
    """Return the pod that a manifest is on this node; `digest` stands for the manifest's text."""
    metadata = fields(manifest, "metadata")
    return {
        **manifest,
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": f"{text(metadata, 'name')}-{node_name}",
            "namespace": text(metadata, "namespace") or "default",
            "annotations": {**fields(metadata, "annotations"), _SOURCE: "file", _HASH: digest},
        },
        "spec": {**fields(manifest, "spec"), "nodeName": node_name},
    }


def mirror_of(pod: Object, node: Object) -> Object:
    """Return the mirror pod that shows a static pod of a node in the API, without its status."""
    metadata = fields(pod, "metadata")
    annotations = fields(metadata, "annotations")
    kept: Object = {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": text(node, "metadata", "name"),
        "uid": text(node, "metadata", "uid"),
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            "annotations": {**annotations, _MIRROR: text(annotations, _HASH)},
            "ownerReferences": [owner],
        },
        "spec": fields(pod, "spec"),
    }


def is_static(pod: Object) -> bool:
    """Whether a node runs a pod from a manifest of its own."""
    return _SOURCE in fields(pod, "metadata", "annotations")


def is_mirror(pod: Object) -> bool:
    """Whether a pod of the API only shows a static pod."""
    return _MIRROR in fields(pod, "metadata", "annotations")


class StaticPods:
    """The static pods of one node. Lives as long as its agent; `run` follows the folder."""

    def __init__(self, node_name: str, folder: Path, registry: Registry) -> None:
        self.registry = Registry(now=lambda: registry.now)
        """The node's own, with nothing in it but static pods and their namespaces."""
        self._node_name = node_name
        self._folder = folder
        self._api = registry
        self._refused: dict[str, str] = {}
        self._look_again = asyncio.Event()

    async def run(self) -> None:
        """Take on the pods of the folder and let go of those that are not in it, until cancelled."""
        async with shared_watcher() as watcher:
            with watcher.subscribe(self._look_again.set) as subscription:
                while True:
                    self._look_again.clear()
                    subscription.arm([str(self._folder / "*")], writes_in=str(self._folder))
                    self._look()
                    await self._look_again.wait()

    def look_again(self) -> None:
        """Have the folder looked at, since a pod of it is gone."""
        self._look_again.set()

    def mirror(self, selection: Selection = EVERYTHING) -> None:
        """Make the API's mirror pods what the static pods are; `selection` are the pods of this node."""
        node = self._api.find(NODES, "", self._node_name)
        mirrors = {_key(one): one for one in self._api.all(PODS, selection) if is_mirror(one)}
        for pod in self.registry.all(PODS) if node is not None else ():
            mirror = mirrors.pop(_key(pod), None)
            if mirror is not None and _is_outdated(mirror, pod):
                self._remove(self._api, mirror)
                mirror = None
            with suppress(StatusError):  # another pod has the name, or its namespace is not there
                if mirror is None:
                    mirror = self._api.create(PODS, _key(pod)[0], mirror_of(pod, node or {}))
                status = fields(pod, "status")
                if status and not same(status, part(mirror, "status")):
                    self._api.set_status(PODS, *_key(pod), status)
        for mirror in mirrors.values():
            self._remove(self._api, mirror)

    # ── inside ──

    def _look(self) -> None:
        wanted = dict(map(self._wanted, self._texts().items()))
        for pod in self.registry.all(PODS):
            new = wanted.pop(_key(pod), None)
            if new is None or _digest_of(new) != _digest_of(pod):
                # One that was changed is made anew once the old one is gone.
                with suppress(StatusError):
                    self.registry.delete(PODS, *_key(pod))
        for (namespace, name), new in wanted.items():
            if new is not None:
                self._take_on(namespace, name, new)

    def _texts(self) -> dict[str, str]:
        """Return the manifests by file name; hidden files are none, as everywhere in Kubernetes."""
        found = {}
        with suppress(OSError):
            for file in sorted(self._folder.iterdir()):
                if not file.name.startswith("."):
                    with suppress(OSError, UnicodeDecodeError):
                        found[file.name] = file.read_text(encoding="utf-8")
        return found

    def _wanted(self, file: tuple[str, str]) -> tuple[tuple[str, str], Object | None]:
        name, content = file
        digest = hashlib.sha256(content.encode()).hexdigest()[:32]
        try:
            pod = static_pod(read_manifest(content, file=name), self._node_name, digest)
            if part(pod, "spec", "resourceClaims"):
                # pkg/kubelet/config/common.go tryDecodeSinglePod
                problem = Problem(0, 0, "spec.resourceClaims", "static pods may not reference resourceclaims")
                raise ConfigError(name, [problem])
        except ConfigError as error:
            self._refuse(name, digest, error)
            return ("", name), None
        return _key(pod), pod

    def _take_on(self, namespace: str, name: str, pod: Object) -> None:
        try:
            if self.registry.find(NAMESPACES, "", namespace) is None:
                self.registry.create(NAMESPACES, "", {"metadata": {"name": namespace}})
            self.registry.create(PODS, namespace, pod)
        except StatusError as error:
            self._refuse(name, _digest_of(pod), error)

    def _refuse(self, name: str, digest: str, error: DevplugError | StatusError) -> None:
        """Log once for each text that it is no pod to run."""
        if self._refused.get(name) != digest:
            self._refused[name] = digest
            logger.warning(
                "a static pod does not run: correct its manifest", extra={"pod": name, "error": str(error)}
            )

    @staticmethod
    def _remove(registry: Registry, pod: Object) -> None:
        with suppress(StatusError):
            registry.delete(PODS, *_key(pod), grace_seconds=0)


def _key(pod: Object) -> tuple[str, str]:
    return text(pod, "metadata", "namespace"), text(pod, "metadata", "name")


def _digest_of(pod: Object) -> str:
    return text(pod, "metadata", "annotations", _HASH)


def _is_outdated(mirror: Object, pod: Object) -> bool:
    """Whether a mirror pod shows another text than the pod's, or somebody deletes it."""
    is_ending = bool(text(mirror, "metadata", "deletionTimestamp"))
    return is_ending or text(mirror, "metadata", "annotations", _MIRROR) != _digest_of(pod)
