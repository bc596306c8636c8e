"""The options of `devplug run`: one table, which click shows and completes, and what they say together.

A daemon runs for months and reads its arguments once, so plain ones are read here: click would stay in its
memory, 1.2 MB of it, and makes its start longer. Whatever is not plain is left to click, which knows all
forms and says what is wrong with the others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from msgspec import Struct

from devplug.cli.machine import pod_resources_socket
from devplug.kubelet_dir import (
    CDI_DIR,
    CDI_DIR_VARIABLE,
    KUBELET_PLUGIN_DIR,
    KUBELET_ROOT,
    KUBELET_ROOT_VARIABLE,
    KUBELET_SOCKET,
)
from devplug.logs import FORMS, LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.logs import Form


class Option(Struct, frozen=True):
    """One option of a command."""

    names: tuple[str, ...]
    """As they are written, the longest last: `("-c", "--config")`."""
    variable: str
    """The environment variable that counts where the option is left out."""
    help: str
    metavar: str | None = None
    kind: Literal["text", "path", "flag"] = "text"
    default: str | None = None
    choices: tuple[str, ...] = ()
    """The values that it may have; empty: any text."""

    @property
    def key(self) -> str:
        """The name of its value: `config`."""
        return self.names[-1].removeprefix("--").replace("-", "_")


KUBELET_ROOT_OPTION: Final = Option(
    ("--kubelet-root",),
    KUBELET_ROOT_VARIABLE,
    "The kubelet's --root-dir, with pod-resources and plugins_registry; k0s and microk8s have another one.",
    metavar="DIR",
    kind="path",
    default=KUBELET_ROOT,
)
PLUGIN_DIR_OPTION: Final = Option(
    ("--plugin-dir",),
    "DEVPLUG_PLUGIN_DIR",
    "The folder with kubelet.sock. Default: /var/lib/kubelet/device-plugins, which no --root-dir moves.",
    metavar="DIR",
    kind="path",
)
DEFAULT_CONFIG: Final = "/etc/devplug/config.yaml"
CONFIG_OPTION: Final = Option(
    ("-c", "--config"),
    "DEVPLUG_CONFIG",
    f"The configuration file. Default: {DEFAULT_CONFIG}.",
    metavar="FILE",
)
RUN_OPTIONS: Final = (
    CONFIG_OPTION,
    KUBELET_ROOT_OPTION,
    PLUGIN_DIR_OPTION,
    Option(
        ("--cdi-dir",),
        CDI_DIR_VARIABLE,
        "The folder in which container runtimes look for CDI files.",
        metavar="DIR",
        kind="path",
        default=CDI_DIR,
    ),
    Option(
        ("--listen",),
        "DEVPLUG_LISTEN",
        "Serve /healthz, /readyz and /metrics at this address: 127.0.0.1:9410, :9410 or unix:PATH. "
        "Default: only at the status socket, which devplug status reads.",
        metavar="ADDRESS",
    ),
    Option(
        ("--log-format",),
        "DEVPLUG_LOG_FORMAT",
        "Lines for people, or one JSON object a line.",
        default="text",
        choices=FORMS,
    ),
    Option(
        ("--log-level",),
        "DEVPLUG_LOG_LEVEL",
        "Leave out lines below this level; audit lines stay.",
        default="info",
        choices=tuple(LEVELS),
    ),
    Option(
        ("--kube-events",),
        "DEVPLUG_KUBE_EVENTS",
        "Write Events and the condition DevicesReady of this Node to the cluster. Needs rights; "
        "devplug manifests --kube-events grants them.",
        kind="flag",
    ),
)


class RunOptions(Struct, frozen=True):
    """What `devplug run` was asked for."""

    config: str | None
    """The file; None for the usual one."""
    plugin_dir: Path
    pod_resources: Path
    cdi_dir: Path
    listen: str | None
    log_format: Form
    log_level: str
    kube_events: bool


def folder_of_plugins(kubelet_root: str, plugin_dir: str | None) -> Path:
    """Return the folder with `kubelet.sock`: the one that is named, or the one that is compiled in.

    A kubelet's --root-dir does not move it (deviceplugin/v1beta1/constants.go). Only the emulated one of a
    sandbox has it in its own folder, with its socket.
    """
    if plugin_dir:
        return Path(plugin_dir)
    return Path(kubelet_root, "device-plugins") if has_own_plugins(kubelet_root) else Path(KUBELET_PLUGIN_DIR)


def has_own_plugins(kubelet_root: str) -> bool:
    """Whether the socket at which plugins register is in the kubelet's folder, as in a sandbox."""
    return os.path.exists(f"{kubelet_root}/device-plugins/{KUBELET_SOCKET}")  # noqa: PTH110 -- no right is no socket


def plain_options(arguments: Sequence[str], environment: Mapping[str, str]) -> RunOptions | None:
    """Return what these arguments of `devplug` ask for, or None if they are no plain `devplug run`.

    Plain are options that are written out, each once, with a value that does not begin with a hyphen.
    """
    if arguments[:1] != ["run"] or any(name.startswith(_OF_CLICK) for name in environment):
        return None
    written = _written(arguments[1:])
    if written is None:
        return None
    values: dict[str, str | None] = {}
    for option in RUN_OPTIONS:
        value = written.get(option.key) or environment.get(option.variable) or option.default
        if option.choices and value not in option.choices:
            return None
        if option.kind == "flag" and value and option.key not in written:
            return None  # click knows many words for yes and no
        values[option.key] = value
    kubelet_root = values["kubelet_root"] or KUBELET_ROOT
    if "kubelet_root" in written and "plugin_dir" not in written and has_own_plugins(kubelet_root):
        values["plugin_dir"] = None  # what is written out wins over the environment
    return RunOptions(
        config=values["config"],
        plugin_dir=folder_of_plugins(kubelet_root, values["plugin_dir"]),
        pod_resources=pod_resources_socket(kubelet_root),
        cdi_dir=Path(values["cdi_dir"] or CDI_DIR),
        listen=values["listen"],
        log_format=cast("Form", values["log_format"]),
        log_level=cast("str", values["log_level"]),
        kube_events=bool(values["kube_events"]),
    )


_OF_CLICK: Final = ("DEVPLUG_RUN_", "_DEVPLUG_")
"""How the variables begin that click reads besides: one more name for each option, and what a shell asks."""


def _written(words: Sequence[str]) -> dict[str, str] | None:
    """Return the options that are written out, by key; None if something is not plain."""
    by_name = {name: option for option in RUN_OPTIONS for name in option.names}
    written: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = by_name.get(name)
        if option is None or option.key in written or (equals and option.kind == "flag"):
            return None
        if option.kind == "flag":
            value = name
        elif not equals:
            value = next(rest, "")
        if not value or (value.startswith("-") and option.kind != "flag"):
            return None
        written[option.key] = value
    return written
