"""Mistakes in a DeviceConfig read like those in the configuration file, and all are told at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.loader import decode_device_config
from devplug.driver.parameters import API_VERSION, KIND, DeviceConfig, ParameterDecoder, decoded

HEAD = {"apiVersion": API_VERSION, "kind": KIND}


def problems(**keys: Any) -> list[str]:
    return list(decode_device_config(HEAD | keys)[1])


@pytest.mark.parametrize("decode", [decode_device_config, decoded])
def test_all_that_can_be_configured_is_read(decode: ParameterDecoder) -> None:
    found = decode(HEAD | {"permissions": "r", "env": {"BAUD": "9600"}, "containerPath": "/dev/modem"})
    assert found == (DeviceConfig("r", env={"BAUD": "9600"}, container_path="/dev/modem"), [])
    assert decode(HEAD) == (DeviceConfig(), [])


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"permission": "r"}, "keys: Object contains unknown field `permission`"),
        ({"env": {"BAUD": 9600}}, "env[...]: Expected `str`, got `int`"),
        ({"env": ["BAUD=9600"]}, "env: Expected `object`, got `array`"),
        ({"apiVersion": "devplug.io/v2"}, "apiVersion: Invalid enum value 'devplug.io/v2'"),
        ({"kind": "GpuConfig"}, "kind: Invalid enum value 'GpuConfig'"),
    ],
)
def test_a_driver_in_code_is_as_strict(keys: dict[str, object], text: str) -> None:
    assert list(decoded(HEAD | keys)[1]) == [text]
    assert decode_device_config(HEAD | keys)[1]


@given(
    content=st.dictionaries(st.sampled_from([*HEAD, "env", "permissions", "x"]), st.text() | st.integers())
)
def test_what_one_decoder_takes_the_other_one_takes(content: dict[str, object]) -> None:
    first, second = decode_device_config(content), decoded(content)
    if not second[1] and not list(second[0].problems()):
        assert first == second
    else:
        assert first[1]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"permission": "r"}, "permission: unknown key; did you mean permissions?"),
        ({"permissions": "wr"}, 'permissions: "wr" is not possible; did you mean rw?'),
        ({"env": {"BAUD": 9600}}, 'env.BAUD: YAML reads 9600 as a number; write "9600"'),
        ({"env": ["BAUD=9600"]}, "env: is a list; write a map with NAME: value"),
        ({"containerPath": None}, "containerPath: YAML reads null as nothing"),
        ({"apiVersion": "devplug.io/v2"}, 'apiVersion: "devplug.io/v2" is not possible; did you mean'),
        ({"kind": "GpuConfig"}, 'kind: "GpuConfig" is not possible'),
    ],
)
def test_a_mistake_reads_as_in_the_file(keys: dict[str, Any], text: str) -> None:
    (problem,) = problems(**keys)
    assert problem.startswith(text)


def test_all_mistakes_are_told_at_once() -> None:
    assert len(decode_device_config({"permissions": "x", "env": 1, "colour": "red"})[1]) == 5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["env", "permissions", "containerPath", "x"]), json_values))
def test_whatever_somebody_writes_is_read_or_told(content: dict[str, Any]) -> None:
    config, wrong = decode_device_config(HEAD | content)
    assert isinstance(config, DeviceConfig)
    assert wrong or list(config.problems()) == list(config.problems())
