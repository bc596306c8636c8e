"""Values as YAML text: what a reader of YAML makes of it is the value again, and people can read it."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.yaml import Value, flow, yaml_text

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "0403",
        "1e3",
        "yes",
        "No",
        "null",
        "~",
        "",
        " a",
        "a: b",
        "- a",
        "#",
        "12:30:45",
        "2024-01-31",
        "beef",
        "off",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(values)
def test_what_is_written_is_read_back(value: Value) -> None:
    assert yaml.safe_load(yaml_text(value)) == value
    assert yaml.safe_load(flow(value)) == value


def test_blocks_have_a_line_for_each_key_and_lists_of_words_have_one() -> None:
    value: Value = {"a": [{"b": "0403", "c": {"d": ["tty", "block"]}}, {"b": "x"}], "e": [], "f": True}
    assert yaml_text(value) == (
        'a:\n  - b: "0403"\n    c:\n      d: [tty, block]\n  - b: x\ne: []\nf: true\n'
    )


def test_a_selector_fits_on_a_line_with_its_hex_digits_in_quotes() -> None:
    assert flow({"vendor": "0403", "product": "beef", "driver": "vfio-pci", "name": "renderD*"}) == (
        '{vendor: "0403", product: "beef", driver: vfio-pci, name: "renderD*"}'
    )
