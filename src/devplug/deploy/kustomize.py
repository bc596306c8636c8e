"""The files of the kustomize base, by path below its folder. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from devplug.deploy.manifests import manifests
from devplug.yamltext import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.deploy.objects.names import Release
    from devplug.yamltext import Value

__all__ = ["base_files"]

_CONFIG_FILE = "config.yaml"


def base_files(values: Mapping[str, Value], release: Release, head: Iterable[str] = ()) -> dict[str, str]:
    """Return the text of each file: an object each, the configuration, and what puts them together.

    An overlay replaces the configuration by a configMapGenerator with `behavior: replace`. `head` has the
    lines of a comment before all.
    """
    made: dict[str, str] = {}
    generated: list[Value] = []
    for one in manifests(values, release):
        metadata = cast("Mapping[str, Value]", one["metadata"])
        if one["kind"] == "ConfigMap":
            data = cast("Mapping[str, str]", one["data"])
            made |= data
            options: Value = {"disableNameSuffixHash": True, "labels": metadata["labels"]}
            generated.append(
                {
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "files": [*data],
                    "options": options,
                }
            )
        else:
            made[f"{str(one['kind']).lower()}.yaml"] = yaml_text(one)
    comments = "".join(f"# {line}\n" for line in head)
    resources = [name for name in made if name != _CONFIG_FILE]
    made["kustomization.yaml"] = comments + yaml_text(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": resources,
            # Without a hash in the name: the pods read a changed file anew, and need not be replaced.
            "configMapGenerator": generated,
        }
    )
    return made
