"""Whatever the file has in it: a configuration or a ConfigError, never another exception."""

from __future__ import annotations

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.decoder import sections_of
from devplug.daemon.config.loader import load
from devplug.daemon.config.types import Config
from devplug.errors import ConfigError

KEYS = sorted({one.encode_name for _, section in sections_of(Config) for one in section.fields})
WORDS = [
    *("/dev/x*", "/dev/fuse", "/dev/*", "a.b/c", "{id}", "{ids}", "{index", "PORT_{index}", "30s", "forever"),
    *(
        "rw",
        "rwm",
        "auto",
        "none",
        "static",
        "0403",
        "\0",
        "\ud83d",
        "é",
        "",
        "[",
        "/dev/[z-a]",
        "$X",
        "x" * 70,
    ),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=10),
    st.dates(),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.sampled_from(KEYS), st.text(max_size=4), st.integers()), inner, max_size=6
        ),
    ),
    max_leaves=40,
)


def loads_or_says_why(source: bytes | str) -> None:
    lines: list[str] | None = None
    try:
        assert isinstance(load(source, "f.yaml"), Config)
    except ConfigError as error:
        lines = error.lines()
    assert lines is None or lines
    assert all(line.startswith("f.yaml:") and "\n" not in line for line in lines or ())


@given(st.binary(max_size=200))
def test_any_bytes(source: bytes) -> None:
    loads_or_says_why(source)


@given(st.text(alphabet="ab:-?[]{}&*!|>'\"%@`# \n\t,01~<=./\\u$", max_size=80))
def test_any_text_of_the_signs_that_mean_something_to_yaml(source: str) -> None:
    loads_or_says_why(source)


@given(TREES)
def test_any_tree(tree: object) -> None:
    loads_or_says_why(yaml.safe_dump(tree, allow_unicode=True))
    loads_or_says_why(yaml.safe_dump({"version": 1, "resources": [tree, tree]}, default_flow_style=True))


@given(TREES, TREES, TREES)
def test_any_values_in_the_right_places(discover: object, expose: object, rest: object) -> None:
    resource = {
        "name": "a.b/c",
        "discover": {"path": discover},
        "expose": {"env": expose, "containerPath": rest},
        "share": rest,
        "health": [expose],
    }
    loads_or_says_why(json.dumps({"version": 1, "resources": [resource]}, default=str))


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_texts_in_the_right_places(glob: str, name: str, value: str) -> None:
    resource = {
        "name": "a.b/c",
        "id": value,
        "discover": {"path": {"glob": f"/dev/{glob}", "exclude": [glob]}},
        "expose": {
            "env": {name: value},
            "annotations": {name: value},
            "containerPath": value,
            "mounts": [{"hostPath": f"/{name}", "containerPath": value}],
        },
        "nodeNames": [glob],
    }
    loads_or_says_why(json.dumps({"version": 1, "resources": [resource, {**resource, "name": name}]}))
