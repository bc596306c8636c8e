"""Which devices a runtime finds in CDI files, as JSON and as YAML, with comments or without."""

from __future__ import annotations

import json

import pytest

from devplug.conformance.dra.cdi_rules import defined_names, file_faults, read_by_runtimes
from devplug.k8s.yaml import Value, yaml_text

SPEC: Value = {
    "cdiVersion": "0.5.0",
    "kind": "k8s.example.com/claim",
    "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.json", json.dumps(SPEC)),
        ("x.yaml", yaml_text(SPEC)),
        ("x.yaml", f"# a comment\n{json.dumps(SPEC)}"),
    ],
)
def test_a_spec_is_read_in_each_of_its_forms(name: str, text: str) -> None:
    assert defined_names(read_by_runtimes({name: text.encode()}).values()) == ["k8s.example.com/claim=a"]
    assert file_faults(name, text.encode()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"- a", b"\xff", b"[" * 100_000, b"a: *b"])
def test_what_is_no_object_is_read_by_nobody(content: bytes) -> None:
    assert read_by_runtimes({"x.yaml": content, "x.txt": b"{}"}) == {}
    assert file_faults("x.yaml", content) == ["x.yaml is no object in JSON or YAML"]
