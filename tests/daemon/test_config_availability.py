"""What is part of the format and not of this version, and what makes no sense for a kind of discovery."""

from __future__ import annotations

import pytest

from devplug import __version__
from devplug.daemon.loading import load
from devplug.errors import ConfigError

NOT_BUILT = f"not built yet in devplug {__version__}"


def messages(text: str) -> list[str]:
    """Return what is wrong with `text`, without the places in the file."""
    try:
        load(text, "f.yaml")
    except ConfigError as error:
        return [str(problem).removeprefix("resources[0].") for problem in error.problems]
    return []


def resource(rest: str) -> str:
    return f'version: 1\nresources:\n- {{name: a.b/c, discover: {{path: "/dev/x*"}}, {rest}}}\n'


def discovering(what: str, rest: str = "") -> str:
    return f"version: 1\nresources:\n- {{name: a.b/c, discover: {{{what}}}, {rest}}}\n"


# ── what this version has not ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            discovering('usb: {vendor: "0403"}'),
            f"discover.usb: {NOT_BUILT}; this version discovers: path, static",
        ),
        (discovering("pci: {driver: x}"), f"discover.pci: {NOT_BUILT}; this version discovers: path, static"),
        (
            discovering("sysfs: {subsystem: x}"),
            f"discover.sysfs: {NOT_BUILT}; this version discovers: path, static",
        ),
        (discovering("net: {driver: x}"), f"discover.net: {NOT_BUILT}; this version discovers: path, static"),
        (discovering("nvidia: {}"), f"discover.nvidia: {NOT_BUILT}; this version discovers: path, static"),
        (
            discovering("bundle: {paths: [/dev/x]}"),
            f"discover.bundle: {NOT_BUILT}; this version discovers: path, static",
        ),
        (resource("prefer: packed"), f"prefer: packed is {NOT_BUILT}; this version prefers: auto, none"),
        (resource("health: [{open: true}]"), f"health: {NOT_BUILT}"),
        (resource("onRelease: {exec: {command: [/bin/true]}}"), f"onRelease: {NOT_BUILT}"),
        (resource("nodeSelector: {a: b}"), f"nodeSelector: {NOT_BUILT}"),
        (resource("expose: {cdiDevices: [a.b/c=d]}"), f"expose.cdiDevices: {NOT_BUILT}"),
        (resource("expose: {strategy: cdi}"), f"expose.strategy: {NOT_BUILT}"),
        (resource("expose: {directories: [/dev/snd]}"), f"expose.directories: {NOT_BUILT}"),
    ],
)
def test_what_is_not_built_yet_is_refused_by_name(text: str, message: str) -> None:
    assert messages(text) == [message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            resource("expose: {deviceNodes: [tty]}"),
            "expose.deviceNodes: discover.path says already which nodes a device has; leave deviceNodes out",
        ),
        (
            discovering("static: {ids: [a]}", "expose: {containerPath: /dev/x}"),
            "expose.containerPath: discover.static has no device nodes; leave containerPath out",
        ),
        (
            discovering("static: {ids: [a]}", 'id: "x-{index}"'),
            "id: discover.static lists the IDs themselves; leave id out",
        ),
        (
            resource("expose: {strategy: deviceNodes, mode: '0660'}"),
            "expose.mode: needs strategy: cdi; a plain device node stays as it is on the host",
        ),
    ],
)
def test_what_makes_no_sense_for_the_kind_is_refused_with_the_reason(text: str, message: str) -> None:
    assert message in messages(text)
