"""The JSON Schema: up to date, valid, and of one mind with the loader on what a file looks like."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator
from typing import cast

import pytest
import yaml
from jsonschema import Draft202012Validator

from devplug.daemon.config.decoder import sections_of
from devplug.daemon.config.schema import SCHEMA_FILE, config_schema, schema_text
from devplug.daemon.config.types import Config
from tests.daemon.config.test_loader import EXAMPLES

MORE = """\
- {name: example.com/more, discover: {path: [{glob: "/dev/x*", exclude: [/dev/x1]}, /dev/y]}, whenUnplugged: {keepUnhealthyFor: forever}, onRelease: {exec: {command: [/x], timeout: 1m30s}}}
"""  # noqa: E501 -- one resource to a line

WRONG = """\
- {discover: {path: /dev/x}}
- {name: example, discover: {path: /dev/x}}
- {name: a.b/c}
- {name: a.b/c, discover: {}}
- {name: a.b/c, discover: {path: /dev/x, static: {ids: [a]}}}
- {name: a.b/c, discover: {usb: {vendor: 403}}}
- {name: a.b/c, discover: {usb: {vendor: "403"}}}
- {name: a.b/c, discover: {usb: {}}}
- {name: a.b/c, discover: {path: []}}
- {name: a.b/c, discover: {path: /dev/x}, expose: {mountPath: /x}}
- {name: a.b/c, discover: {path: /dev/x}, expose: {permissions: rwx}}
- {name: a.b/c, discover: {path: /dev/x}, expose: {env: {A: {ids}}}}
- {name: a.b/c, discover: {path: /dev/x}, share: {replicas: 0}}
- {name: a.b/c, discover: {path: /dev/x}, share: {replicas: "3"}}
- {name: a.b/c, discover: {path: /dev/x}, whenUnplugged: {keepUnhealthyFor: 30}}
- {name: a.b/c, discover: {path: /dev/x}, whenUnplugged: {keepUnhealthyFor: 5 minutes}}
- {name: a.b/c, discover: {path: /dev/x}, health: [{open: true, file: /x}]}
- {name: a.b/c, discover: {path: /dev/x}, onRelease: {exec: {command: [/x], timeout: forever}}}
- {name: a.b/c, discover: {path: /dev/x}, allow: [everything]}
- {name: a.b/c, discover: {static: {ids: [a], numaNodes: {a: 1024}}}}
"""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(config_schema())


def with_version(resource: object) -> dict[str, object]:
    return {"version": 1, "resources": [resource]}


def test_the_schema_in_the_package_is_up_to_date() -> None:
    file = importlib.resources.files("devplug.daemon.config") / SCHEMA_FILE
    assert file.read_text(encoding="utf-8") == schema_text(), "run make schema"


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(config_schema())
    assert json.loads(schema_text()) == config_schema()


@pytest.mark.parametrize(
    "resource", [*yaml.safe_load(EXAMPLES)["resources"], *yaml.safe_load(MORE)], ids=lambda one: one["name"]
)
def test_every_example_is_valid(validator: Draft202012Validator, resource: object) -> None:
    assert [error.message for error in validator.iter_errors(with_version(resource))] == []


@pytest.mark.parametrize("line", WRONG.splitlines())
def test_every_wrong_resource_is_invalid(validator: Draft202012Validator, line: str) -> None:
    (resource,) = yaml.safe_load(line)
    assert not validator.is_valid(with_version(resource))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 2, "resources": []},
        {"version": 1, "resources": []},
        {"version": 1, "resources": [], "port": 1},
    ],
)
def test_a_wrong_document_is_invalid(validator: Draft202012Validator, document: object) -> None:
    assert not validator.is_valid(document)


def descriptions(schema: object) -> Iterator[tuple[str, dict[str, object]]]:
    for name, section in cast("dict[str, dict[str, dict[str, object]]]", schema).items():
        options = cast("list[dict[str, object]]", section.get("anyOf", []))
        of_map = next((one for one in options if one.get("type") == "object"), section)
        for key, field in cast("dict[str, dict[str, object]]", of_map["properties"]).items():
            yield f"{name}.{key}", field


def test_every_key_says_what_it_is_and_what_holds_without_it() -> None:
    required = {
        f"{section.cls.__name__}.{one.encode_name}"
        for _, section in sections_of(Config)
        for one in section.fields
        if one.required
    }
    for name, field in descriptions(config_schema()["$defs"]):
        description = str(field.get("description", ""))
        assert description.endswith("."), name
        alternative = name.startswith("Discover.") or name in {
            f"HealthRule.{key}" for key in ("attribute", "file", "exec", "open")
        }
        if name not in required and not alternative:
            assert "Default: " in description, name
