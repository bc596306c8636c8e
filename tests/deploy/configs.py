"""Configurations of all kinds, as a file has them, and what each of them makes the pod need."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

DISCOVERIES: dict[str, Any] = {
    "path": "/dev/ttyUSB*",
    "run": "/run/board/dev*",
    "bundle": {"paths": ["/dev/dsp0", "/dev/dsp0-ctl"]},
    "usb": {"vendor": "0403"},
    "pci": {"class": "1200"},
    "sysfs": {"subsystem": "tpmrm"},
    "net": {"interface": "eth*"},
    "nvidia": {"model": "*L4*"},
    "mig": {"mig": "1g.10gb"},
    "static": {"ids": ["a", "b"]},
}
"""A name of the case, and what stands under the kind (`run` is a path, `mig` is nvidia)."""

RULES: dict[str, Any] = {
    "open": {"open": True},
    "exec": {"exec": {"command": ["/opt/selftest", "{id}"]}},
    "attribute": {"attribute": "state", "equals": "ok"},
    "run-file": {"file": "/run/health/{id}", "equals": "ok"},
    "sys-file": {"file": "/sys/class/misc/x/{id}", "equals": "ok"},
    "etc-file": {"file": "/etc/{id}.ok", "equals": "ok"},
}

DRIVER = "devices.example.com"

_KINDS = {"run": "path", "mig": "nvidia"}


@st.composite
def resources(draw: st.DrawFn, case: str) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "name": f"example.com/{case}",
        "discover": {_KINDS.get(case, case): DISCOVERIES[case]},
    }
    if case == "static":
        resource["expose"] = {"env": {"IDS": "{ids}"}}
    else:
        rules = draw(st.lists(st.sampled_from(sorted(RULES)), max_size=2, unique=True))
        if rules:
            resource["health"] = [RULES[rule] for rule in rules]
        if draw(st.booleans()):
            resource["expose"] = {"strategy": "cdi"}
    if draw(st.integers(0, 3)) == 0:
        resource["serve"] = "dra"
    if draw(st.booleans()):
        resource["nodeSelector"] = {"lab": "true"}
    if draw(st.integers(0, 5)) == 0:
        resource["onRelease"] = {"exec": {"command": ["/opt/wipe", "{id}"]}}
    return resource


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    cases = draw(st.lists(st.sampled_from(sorted(DISCOVERIES)), min_size=1, max_size=4, unique=True))
    made = [draw(resources(case)) for case in cases]
    has_driver = any("serve" in one for one in made) or draw(st.booleans())
    return {"version": 1, **({"driver": DRIVER} if has_driver else {}), "resources": made}


def needs(config: dict[str, Any]) -> set[str]:
    """Return what the pod has to be granted, read from the file's own words."""
    of_driver = {"cdi", "token", "/var/lib/kubelet/plugins_registry", f"/var/lib/kubelet/plugins/{DRIVER}"}
    found = {need for resource in config["resources"] for need in _needs(resource)}
    return found | (of_driver if "driver" in config else set())


def _needs(resource: dict[str, Any]) -> set[str]:
    discover, rules = resource["discover"], resource.get("health", [])
    in_run = discover.get("path", "").startswith("/run")
    words = {
        "dev": "static" not in discover and not in_run,
        "/run/board": in_run,
        "network": "net" in discover,
        "nvidia": "nvidia" in discover,
        "mig": "mig" in discover.get("nvidia", {}),
        "cdi": resource.get("expose", {}).get("strategy") == "cdi",
        "token": "nodeSelector" in resource,
        "privileged": "onRelease" in resource or any("open" in rule or "exec" in rule for rule in rules),
        "/run/health": any(rule.get("file", "").startswith("/run/health/") for rule in rules),
    }
    return {word for word, is_needed in words.items() if is_needed}
