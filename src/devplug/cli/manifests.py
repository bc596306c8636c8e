"""`devplug manifests`: what a cluster needs to serve a configuration, in the form that is wanted."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from devplug import __version__
from devplug.cli.exits import BAD_INPUT, OK
from devplug.errors import quoted
from devplug.kubelet_dir import KUBELET_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.k8s.yaml import Value

STANDARD_INPUT: Final = "-"
FORMS: Final = ("manifests", "chart-values", "chart", "kustomize")

_IN_FOLDERS: Final = ("chart", "kustomize")
_SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_EPILOG: Final = """\b
Examples:
  devplug manifests -c devplug.yaml | kubectl apply -f -
  devplug manifests -c devplug.yaml --kubelet-root /var/lib/k0s/kubelet > devplug.k0s.yaml
  devplug manifests -c devplug.yaml --format chart-values > values.yaml
  devplug manifests -c devplug.yaml --format kustomize --to base
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of the command line, beside the configuration and the form."""

    name: str = "devplug"
    namespace: str = "devplug"
    image: str | None = None
    kubelet_root: str = KUBELET_ROOT
    runtime_class: str | None = None
    kube_events: bool = False
    may_open: bool = True
    """Whether the pod may open devices where the configuration needs it."""


def manifests(config_file: str | None, wanted: Wanted, *, form: str, folder: str | None, output: str) -> int:
    """Print or write a deployment of a configuration, or of the starter; return the exit code.

    Raises `ConfigError` for a configuration that cannot be used.
    """
    from devplug.daemon.config.loader import load
    from devplug.deploy.chart import chart_files, overridden
    from devplug.deploy.manifests import base_files, lines_for, values_for
    from devplug.deploy.manifests import manifests as objects_of
    from devplug.deploy.names import Release
    from devplug.deploy.security_context import needs_of

    _check_names(wanted)
    if (form in _IN_FOLDERS) != (folder is not None):
        raise click.UsageError(
            "--format chart and --format kustomize need --to DIR; the other formats are printed and "
            "take no --to"
        )
    source, name = _source(config_file)
    needs = needs_of(load(source, name))
    values = overridden(values_for(needs, may_open=wanted.may_open), _wanted_values(wanted))
    if config_file is not None:
        values = overridden(values, {"config": {"inline": source.decode()}})
    head = [
        f"devplug {__version__}, made for {name} by devplug manifests.",
        *lines_for(needs, may_open=wanted.may_open, kube_events=wanted.kube_events),
    ]
    if form == "chart-values":
        return _print([values], head, output)
    if form == "chart":
        return _write(Path(folder or ""), chart_files(values))
    release = Release(wanted.name, wanted.namespace, __version__)
    is_ours = wanted.namespace not in _SYSTEM_NAMESPACES
    values = overridden(values, {"fullnameOverride": wanted.name, "createNamespace": is_ours})
    if form == "kustomize":
        return _write(Path(folder or ""), base_files(values, release, head))
    return _print(objects_of(values, release), head, output)


_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"(?!.{{254}}){_LABEL.pattern}(\.{_LABEL.pattern})*")
"""Names of objects (RFC 1123, apimachinery validation.go)."""


def _check_names(wanted: Wanted) -> None:
    """Raise `UsageError` for names that the API server refuses, and for text that is not printable."""
    names = {"--name": wanted.name, "--namespace": wanted.namespace, "--runtime-class": wanted.runtime_class}
    for option, name in names.items():
        pattern = _SUBDOMAIN if option == "--runtime-class" else _LABEL
        if name and not pattern.fullmatch(name):
            raise click.UsageError(
                f"{option} {quoted(name)} is not a name of Kubernetes; use lower-case letters, digits and -"
            )
    for option, text in {"--kubelet-root": wanted.kubelet_root, "--image": wanted.image}.items():
        if text and not text.isprintable():
            raise click.UsageError(f"{option} {quoted(text)} contains characters that are not printable")


def _source(file: str | None) -> tuple[bytes, str]:
    """Return the configuration's text, and the name of its file for people."""
    from devplug.daemon.config.document import SIZE_LIMIT_BYTES
    from devplug.daemon.config_file import read_config_file
    from devplug.deploy.chart import starter

    if file is None:
        return (
            starter().encode(),
            "a starter (fuse, kvm and tun for everyone; -c FILE names another configuration)",
        )
    if file == STANDARD_INPUT:
        return sys.stdin.buffer.read(SIZE_LIMIT_BYTES + 1), "stdin"
    return read_config_file(file), Path(file).name


def _wanted_values(wanted: Wanted) -> dict[str, Value]:
    from devplug.deploy.manifests import image_values

    values: dict[str, Value] = {}
    if wanted.kubelet_root != KUBELET_ROOT:
        if not wanted.kubelet_root.startswith("/"):
            raise click.UsageError(f"--kubelet-root {wanted.kubelet_root} is not absolute; begin with /")
        values["kubeletRoot"] = wanted.kubelet_root.rstrip("/")
    if wanted.runtime_class is not None:
        values["runtimeClassName"] = wanted.runtime_class
    if wanted.kube_events:
        values["kubeEvents"] = {"enabled": True}
    if wanted.image is not None:
        try:
            values |= image_values(wanted.image)
        except ValueError as error:
            raise click.UsageError(f"--image: {error}") from None
    return values


def _print(documents: Iterable[Mapping[str, Value]], head: Iterable[str], output: str) -> int:
    from devplug.k8s.yaml import comments, yaml_text

    objects = [*documents]
    if output == "json":
        items = cast("Value", objects)
        whole = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}
        click.echo(json.dumps(whole, indent=2))
        return OK
    click.echo(comments(head), nl=False)
    click.echo("---\n".join(map(yaml_text, objects)), nl=False)
    return OK


def _write(folder: Path, files: Mapping[str, str]) -> int:
    """Write the files below a folder, which may have them already; nothing else in it is touched."""
    try:
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        click.echo(f"devplug: cannot write to {folder}: {error.strerror}; name another --to", err=True)
        return BAD_INPUT
    click.echo(f"wrote {len(files)} files to {folder}")
    return OK


@click.command("manifests", epilog=_EPILOG)
@click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    envvar="DEVPLUG_CONFIG",
    help="The configuration to deploy; - for standard input. Default: a starter with fuse, kvm and tun.",
)
@click.option(
    "--name", default="devplug", show_default=True, help="Name of the DaemonSet and of the objects around it."
)
@click.option(
    "-n",
    "--namespace",
    default="devplug",
    show_default=True,
    help="Namespace of the objects; it is created unless every cluster has it.",
)
@click.option("--image", metavar="IMAGE", help="The image. Default: devplug's own of this version.")
@click.option(
    "--kubelet-root",
    metavar="DIR",
    envvar="DEVPLUG_KUBELET_ROOT",
    default=KUBELET_ROOT,
    show_default=True,
    help="The kubelet's folder on the machines; k0s: /var/lib/k0s/kubelet.",
)
@click.option(
    "--runtime-class",
    metavar="NAME",
    help="Runtime class of the pods. Default: nvidia if the configuration serves NVIDIA GPUs.",
)
@click.option("--kube-events", is_flag=True, help="Write Events and a condition of the Node; needs a token.")
@click.option(
    "--device-access/--no-device-access",
    "may_open",
    default=True,
    help="Whether the pod may open devices (as privileged) if a rule needs it. Default: yes.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="manifests",
    show_default=True,
    help="Objects to apply, values for the Helm chart, the chart itself, or a kustomize base.",
)
@click.option("--to", "folder", metavar="DIR", help="The folder that the chart or base is written to.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="The form of what is printed.",
)
def manifests_command(
    config_file: str | None,
    *,
    name: str,
    namespace: str,
    image: str | None,
    kubelet_root: str,
    runtime_class: str | None,
    kube_events: bool,
    may_open: bool,
    form: str,
    folder: str | None,
    output: str,
) -> int:
    """Print the manifests that serve a configuration on a cluster.

    A DaemonSet and all around it. The pod is allowed what the configuration needs and nothing else; the first
    lines say what, and why.
    """
    wanted = Wanted(name, namespace, image, kubelet_root, runtime_class, kube_events, may_open)
    return manifests(config_file, wanted, form=form, folder=folder, output=output)
