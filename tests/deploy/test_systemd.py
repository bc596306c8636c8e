"""The unit for machines without a pod: systemd understands it, and it grants what the DaemonSet grants."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.security_context.grants import Grants, grants_of
from tests.deploy.security_context.manifest import daemon_set
from tests.deploy.security_context.stage import CONFIG

UNIT: Final = Path(__file__).parents[2] / "deploy" / "systemd" / "devplug.service"
PROGRAM: Final = "/opt/devplug/bin/devplug"
EXPOSURE_LIMIT: Final = 12
"""Tenths of `systemd-analyze security`'s scale to ten: below 2 it says SAFE. Uid 0 and /dev alone cost 6."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (apt install systemd)"
)


def settings() -> dict[str, list[str]]:
    """Return the unit's settings, each with all of its values."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def setting(key: str) -> str:
    (value,) = settings()[key]
    return value


def container() -> Grants:
    return grants_of(daemon_set(CONFIG)["spec"]["template"]["spec"], "n")


def analyzed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on the unit, with a program that is there."""
    unit = folder / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    command = ["systemd-analyze", *words, str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# ── systemd's view ────────────────────────────────────────────────────────────────────────────────


@needs_systemd
def test_systemd_knows_each_setting(tmp_path: Path) -> None:
    ran = analyzed(tmp_path, "verify", "--man=no")
    told = [line for line in (ran.stdout + ran.stderr).splitlines() if UNIT.name in line]
    assert (ran.returncode, told) == (0, [])


@needs_systemd
def test_systemd_calls_it_safe(tmp_path: Path) -> None:
    known = subprocess.run(["systemd-analyze", "--help"], capture_output=True, text=True, check=False)
    if "--offline" not in known.stdout:
        pytest.skip("systemd-analyze is older than 250 and judges only units that run")
    ran = analyzed(tmp_path, "security", "--offline=true", f"--threshold={EXPOSURE_LIMIT}", "--no-pager")
    assert ran.returncode == 0, ran.stdout


# ── the same as in a pod ──────────────────────────────────────────────────────────────────────────


def test_it_is_the_same_user_without_capabilities() -> None:
    assert container().user_id == 0
    assert setting("User") == "root"
    assert container().capabilities == frozenset()
    assert setting("CapabilityBoundingSet") == setting("AmbientCapabilities") == ""


def test_it_gains_no_privileges_and_its_calls_are_filtered() -> None:
    assert container().no_new_privileges
    assert setting("NoNewPrivileges") == "yes"
    assert container().seccomp
    assert settings()["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    assert setting("SystemCallErrorNumber") == "EPERM"


def test_it_may_write_to_the_same_folders() -> None:
    assert container().read_only_root
    assert setting("ProtectSystem") == "strict"
    assert setting("ReadWritePaths").split() == [
        mount.path for mount in container().mounts if not mount.read_only
    ]


def test_it_sees_devices_and_opens_none() -> None:
    (dev,) = (mount for mount in container().mounts if mount.path == "/dev")
    assert dev.read_only
    assert dev.recursive
    assert setting("ReadOnlyPaths") == "/dev"
    assert setting("DevicePolicy") == "closed"
    assert "PrivateDevices" not in settings()
    assert "DeviceAllow" not in settings()


def test_it_has_namespaces_of_its_own() -> None:
    assert container().host_namespaces == frozenset()
    for what in ("Network", "IPC", "Mounts", "Tmp"):
        assert setting(f"Private{what}") == "yes"
    assert setting("ProtectProc") == "invisible"
    assert setting("ProtectHostname") == "yes"


def test_it_has_the_same_memory() -> None:
    assert container().memory_bytes == int(setting("MemoryMax").removesuffix("M")) * 2**20


def test_its_program_has_the_same_arguments_but_for_the_port() -> None:
    (program, *words) = setting("ExecStart").split()
    assert program == PROGRAM
    assert words[0] == container().words[0] == "run"
    assert words[1:3] == ["--config", "/etc/devplug/config.yaml"]
    assert "--config=/etc/devplug/config.yaml" in container().words
    assert words[words.index("--listen") + 1] == f"unix:/run/{setting('RuntimeDirectory')}/http.sock"


def test_the_kernel_can_be_heard() -> None:
    """Uevents come over netlink; the kubelet is a Unix socket."""
    assert set(setting("RestrictAddressFamilies").split()) == {"AF_UNIX", "AF_NETLINK"}


def test_each_drop_in_that_it_speaks_of_names_a_setting_that_it_has() -> None:
    head = UNIT.read_text().partition("[Unit]")[0]
    named = re.findall(r"\b([A-Z][A-Za-z]+)=", head)
    assert named
    assert {*named} <= settings().keys()
