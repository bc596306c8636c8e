"""What a plugin's class must bring, and what follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug import Device, DevicePlugin, PluginError, serve
from devplug.plugin.contract import offers, options_of, plugin_faults
from devplug.wire.values import PluginOptions
from tests.plugin.fakes import Fed, Listed

HOOKS = ("devices", "allocate", "prefer", "prepare", "pre_start")


def plugin_with(base: Any = Listed, **attributes: Any) -> DevicePlugin:
    plugin = type("Mine", (base,), attributes)()
    assert isinstance(plugin, DevicePlugin)
    return plugin


def hook(*_: object) -> None:
    """Any function is one."""


# ── options ──


@pytest.mark.parametrize(
    ("hooks", "options"),
    [
        ((), PluginOptions(False, False)),
        (("pre_start",), PluginOptions(pre_start_required=True, preferred_allocation_available=False)),
        (("prefer",), PluginOptions(pre_start_required=False, preferred_allocation_available=True)),
        (("allocate", "prepare"), PluginOptions(False, False)),
        (HOOKS, PluginOptions(True, True)),
    ],
)
def test_the_options_follow_from_what_is_overridden(hooks: tuple[str, ...], options: PluginOptions) -> None:
    plugin = plugin_with(**dict.fromkeys(hooks, hook))
    assert options_of(plugin) == options
    assert [name for name in HOOKS if offers(plugin, name)] == [
        name for name in HOOKS if name in hooks or name == "devices"
    ]


def test_an_inherited_hook_is_offered_too() -> None:
    base = type("Base", (Listed,), {"pre_start": hook})
    assert options_of(plugin_with(base)).pre_start_required


# ── faults ──


def test_a_plugin_with_a_name_and_devices_has_no_fault() -> None:
    assert plugin_faults(Listed()) == []
    assert plugin_faults(Fed("a")) == []


def test_a_plugin_may_get_its_name_and_its_time_from_its_instance() -> None:
    plugin = Fed("a", resource_name="vendor.com/x")
    plugin.allocate_timeout_seconds = 1
    assert plugin_faults(plugin) == []


def test_all_faults_are_named_at_once() -> None:
    plugin = plugin_with(
        DevicePlugin, allocate_timeout_seconds=0, pre_start_timeout_seconds=-1, prestart=hook
    )
    assert plugin_faults(plugin) == [
        'Mine has no resource_name; write resource_name = "example.com/kind"',
        "Mine has no method `devices`",
        "Mine: allocate_timeout_seconds is 0; it must be a number of seconds, more than 0",
        "Mine: pre_start_timeout_seconds is -1; it must be a number of seconds, more than 0",
        "Mine has `prestart`, which nothing calls; did you mean `pre_start`?",
    ]


@pytest.mark.parametrize("name", ["fpga", "a/b/c", "kubernetes.io/x", "", "example.com/", "Example.com/x"])
def test_a_name_that_the_kubelet_would_refuse_is_a_fault(name: str) -> None:
    (fault,) = plugin_faults(plugin_with(resource_name=name))
    assert fault.startswith(f'Mine: resource name "{name}" ')


@pytest.mark.parametrize("seconds", [0, -1, "5", None, float("nan"), float("inf"), [5]])
@pytest.mark.parametrize("field", ["allocate_timeout_seconds", "pre_start_timeout_seconds"])
def test_a_time_that_is_no_number_of_seconds_is_a_fault(field: str, seconds: object) -> None:
    (fault,) = plugin_faults(plugin_with(**{field: seconds}))
    assert fault == f"Mine: {field} is {seconds!r}; it must be a number of seconds, more than 0"


@pytest.mark.parametrize(
    "stranger", [Listed, "example.com/a", None, object()], ids=["class", "text", "None", "object"]
)
def test_what_is_no_instance_of_a_plugin_is_a_fault(stranger: Any) -> None:
    (fault,) = plugin_faults(stranger)
    assert fault.endswith("is not an instance of devplug.DevicePlugin")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("alocate", "allocate"),
        ("allocat", "allocate"),
        ("Allocate", "allocate"),
        ("prefere", "prefer"),
        ("perfer", "prefer"),
        ("prestart", "pre_start"),
        ("pre_star", "pre_start"),
        ("pre_Start", "pre_start"),
        ("relaese", "release"),
    ],
)
def test_a_misspelt_hook_is_refused_with_the_name_that_was_meant(name: str, meant: str) -> None:
    expected = [f"Mine has `{name}`, which nothing calls; did you mean `{meant}`?"]
    assert plugin_faults(plugin_with(**{name: hook})) == expected


@pytest.mark.parametrize("name", ["device", "devicess", "deviecs", "Devices"])
def test_a_misspelt_devices_is_refused_without_the_real_one(name: str) -> None:
    expected = [
        "Mine has no method `devices`",
        f"Mine has `{name}`, which nothing calls; did you mean `devices`?",
    ]
    assert plugin_faults(plugin_with(DevicePlugin, resource_name="a.com/x", **{name: hook})) == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [("resource_names", "resource_name"), ("allocate_timeout_second", "allocate_timeout_seconds")],
)
def test_a_misspelt_field_is_refused_with_the_name_that_was_meant(name: str, meant: str) -> None:
    class Bare(DevicePlugin):
        devices = hook  # type: ignore[assignment]

    faults = plugin_faults(plugin_with(Bare, **{name: 5}))
    assert f"Mine has `{name}`, which nothing calls; did you mean `{meant}`?" in faults


@pytest.mark.parametrize(
    "attributes",
    [
        {"device": hook},
        {"Devices": hook},
        {"alocate": hook, "allocate": hook},
        {"resource_names": hook},
        {"resource_names": ("a", "b")},
        {"prepared": hook},
        {"prepares": hook},
        {"released": property(hook)},
        {"relaese": 5},
        {"prestarts": hook},
        {"reset": hook},
        {"_alocate": hook},
        {"allocation": hook},
        {"discover": hook},
    ],
    ids=" ".join,
)
def test_a_name_that_may_be_a_helper_is_no_fault(attributes: dict[str, object]) -> None:
    """The class has the real one beside it, or the name is another word, or it names a value."""
    assert plugin_faults(plugin_with(**attributes)) == []


def test_a_misspelt_hook_of_a_class_between_is_found_too() -> None:
    base = type("Base", (Listed,), {"prestart": hook})
    (fault,) = plugin_faults(plugin_with(base))
    assert "did you mean `pre_start`?" in fault


LETTERS = "abcdefghijklmnopqrstuvwxyz"


@given(st.sampled_from(HOOKS), st.data())
def test_every_change_of_one_letter_is_found(word: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(word) - 1))
    letter = data.draw(st.sampled_from(LETTERS))
    wrong = data.draw(
        st.sampled_from(
            [
                word[:place] + word[place + 1 :],
                word[:place] + letter + word[place:],
                word[:place] + letter + word[place + 1 :],
                word[:place] + word[place : place + 2][::-1] + word[place + 2 :],
            ]
        )
    )
    if wrong in HOOKS or wrong.startswith("_") or (word != "devices" and wrong in {f"{word}s", f"{word}d"}):
        return
    faults = plugin_faults(plugin_with(DevicePlugin, **{wrong: hook}))
    assert any(f"did you mean `{word}`?" in fault for fault in faults)


# ── when it is refused ──


async def test_serve_names_the_faults_of_all_plugins_before_it_serves_any(short_dir: Path) -> None:
    plugins = [plugin_with(DevicePlugin), Listed(), Listed(), plugin_with(resource_name="x")]
    with pytest.raises(PluginError) as caught:
        async with serve(*plugins, plugin_dir=short_dir):
            raise AssertionError
    assert len(caught.value.faults) == 4
    taken = 'resource name "example.com/a" is served already; one plugin per name'
    assert caught.value.faults[-1] == taken
    assert list(short_dir.iterdir()) == []


def test_the_base_class_refuses_to_have_devices() -> None:
    with pytest.raises(PluginError, match="DevicePlugin has no method `devices`"):
        DevicePlugin().devices()


def test_the_default_allocate_gives_the_nodes_of_the_devices() -> None:
    devices = [Device("a", device_nodes=["/dev/a"]), Device("b", device_nodes=["/dev/b"])]
    answer = Listed().allocate(devices)
    assert isinstance(answer, Coroutine)
    response = asyncio.run(answer)
    assert [node.host_path for node in response.device_nodes] == ["/dev/a", "/dev/b"]
    assert response.envs == MappingProxyType({})
