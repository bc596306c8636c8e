"""Templates: what is read, what is written out, and what a device's own values can never do."""

from __future__ import annotations

import json
import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.templates import (
    PLURALS,
    SINGULARS,
    VARIABLES_OF_KIND,
    Missing,
    Template,
    TemplatePlace,
    Variable,
    Writing,
    parse_template,
    render_all,
    render_one,
    template_faults,
)

SERIAL: dict[str, str | int] = {
    "id": "0403:6001:A1",
    "index": 0,
    "file": "ttyUSB0",
    "hostPath": "/dev/ttyUSB0",
    "containerPath": "/dev/serial0",
    "containerPath.tty": "/dev/serial0",
    "serial": "A1",
    "attr.bInterfaceNumber": "00",
    "numaNode": 1,
}
OTHER: dict[str, str | int] = {
    "id": "b",
    "index": 1,
    "file": "ttyUSB1",
    "hostPath": "/dev/ttyUSB1",
    "serial": "a,b",
}


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("plain", ("plain",)),
        ("{id}", (Variable("id"),)),
        ("a{id}b{index}", ("a", Variable("id"), "b", Variable("index"))),
        ("{attr.serial}", (Variable("attr", "serial"),)),
        ("{attr.device/vendor}", (Variable("attr", "device/vendor"),)),
        ("{containerPath.video0}", (Variable("containerPath", "video0"),)),
        ("{{}}", ("{}",)),
        ("{{id}}", ("{id}",)),
        ("{{{id}}}", ("{", Variable("id"), "}")),
        ('{{"a":"{id}"}}', ('{"a":"', Variable("id"), '"}')),
    ],
)
def test_a_template_is_literals_and_variables(text: str, parts: tuple[str | Variable, ...]) -> None:
    assert parse_template(text) == Template(text, parts)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", 'has a "{" without its partner; write {{ for a brace of its own'),
        ("a}", 'has a "}" without its partner; write }} for a brace of its own'),
        ("{id", 'has a "{" without its partner'),
        ("{a{id}}", 'has a "{" without its partner'),
        ("{}", '"{}" is not a variable; write {name}, or {{ for a brace'),
        ("{ id }", '"{ id }" is not a variable'),
        ("{0}", '"{0}" is not a variable'),
        ("{id!r}", '"{id!r}" is not a variable'),
        ("{id:>9}", '"{id:>9}" is not a variable'),
        ("{id[0]}", '"{id[0]}" is not a variable'),
        ("{attr.}", '"{attr.}" is not a variable'),
        ("{__class__}", '"{__class__}" is not a variable'),
    ],
)
def test_a_template_that_cannot_be_read_says_what_to_write(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        parse_template(text)


def test_every_variable_has_a_plural_and_both_lead_to_the_same_fact() -> None:
    for singular, plural in PLURALS.items():
        assert SINGULARS[plural] == singular
        assert Variable(plural, "x").key == Variable(singular, "x").key == f"{singular}.x"
        assert str(Variable(plural)) == f"{{{plural}}}"


# ── one device ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "writing", "rendered"),
    [
        ("{id}", Writing.TEXT, "0403:6001:A1"),
        ("{hostPath}", Writing.TEXT, "/dev/ttyUSB0"),
        ("/dev/serial{index}", Writing.PATH, "/dev/serial0"),
        ("/data/{hostPath}", Writing.PATH, "/data/_dev_ttyUSB0"),
        ("/data/{id}/x", Writing.PATH, "/data/0403:6001:A1/x"),
        ("PORT_{id}", Writing.NAME, "PORT_0403_6001_A1"),
        ("{containerPath.tty} {attr.bInterfaceNumber}", Writing.TEXT, "/dev/serial0 00"),
        ("{numaNode}", Writing.TEXT, "1"),
        ("{{{serial}}}", Writing.TEXT, "{A1}"),
    ],
)
def test_one_device_is_written_where_its_variables_stand(text: str, writing: Writing, rendered: str) -> None:
    assert render_one(parse_template(text), SERIAL, writing) == rendered


def test_a_missing_or_empty_fact_is_an_answer_that_names_it() -> None:
    missing = render_one(parse_template("{id} {attr.speed}"), SERIAL)
    assert missing == Missing(Variable("attr", "speed"))
    assert isinstance(missing, Missing)
    assert missing.reason == "no value for {attr.speed}"
    assert render_one(parse_template("x{serial}"), {"serial": ""}) == Missing(Variable("serial"))


@pytest.mark.parametrize(
    ("text", "serial", "rendered"),
    [
        ("/data/{serial}", "..", "/data/__"),
        ("/data/{serial}/x", ".", "/data/_/x"),
        ("/data/.{serial}", ".", "/data/__"),
        ("/data/{serial}", "../../etc/passwd", "/data/.._.._etc_passwd"),
        ("/data/{serial}", "a\0b\nc ü", "/data/a_b_c__"),
    ],
)
def test_a_value_cannot_leave_the_folder_that_a_path_names(text: str, serial: str, rendered: str) -> None:
    assert render_one(parse_template(text), {"serial": serial}, Writing.PATH) == rendered


# ── all of a container's devices ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{ids}", "0403:6001:A1,b"),
        ("{count} at {hostPaths}", "2 at /dev/ttyUSB0,/dev/ttyUSB1"),
        ("{serials}", "A1,a%2Cb"),
        ("{numaNodes}", "1,"),
        ("{containerPaths.tty}", "/dev/serial0,"),
        ("{attrs.bInterfaceNumber}", "00,"),
        ("all", "all"),
        ("{{{indexes}}}", "{0,1}"),
    ],
)
def test_all_devices_are_lists_in_the_given_order(text: str, rendered: str) -> None:
    assert render_all(parse_template(text), [SERIAL, OTHER]) == rendered


def test_json_has_everything_that_is_known_with_numbers_as_numbers() -> None:
    assert json.loads(render_all(parse_template("{json}"), [SERIAL, OTHER])) == [SERIAL, OTHER]
    assert render_all(parse_template("{json}"), [{"index": 1, "id": "a"}]) == '[{"id":"a","index":1}]'


def test_no_devices_are_empty_lists() -> None:
    assert render_all(parse_template("{ids}|{count}|{json}"), []) == "|0|[]"


# ── properties ────────────────────────────────────────────────────────────────────────────────────

VARIABLES = st.builds(Variable, st.sampled_from(sorted(PLURALS)), st.sampled_from(["", "x", "a.b/c"]))
PARTS = st.lists(st.one_of(st.text(min_size=1), VARIABLES), max_size=8)


def written(parts: list[str | Variable]) -> str:
    return "".join(
        str(part) if isinstance(part, Variable) else part.replace("{", "{{").replace("}", "}}")
        for part in parts
    )


@given(st.text())
def test_any_literal_comes_back_once_its_braces_are_doubled(text: str) -> None:
    template = parse_template(text.replace("{", "{{").replace("}", "}}"))
    assert template.variables == ()
    assert template.literal == text
    assert render_one(template, {}) == text
    assert render_all(template, []) == text


@given(PARTS)
def test_what_is_written_is_what_is_read(parts: list[str | Variable]) -> None:
    template = parse_template(written(parts))
    assert template.variables == tuple(part for part in parts if isinstance(part, Variable))
    assert template.literal == "".join(part for part in parts if isinstance(part, str))
    assert str(template) == written(parts)


@given(st.text())
def test_any_text_is_a_template_or_a_sentence(text: str) -> None:
    sentence = ""
    try:
        assert parse_template(text).source == text
    except ValueError as error:
        sentence = str(error)
    assert not sentence or "write" in sentence


@given(st.lists(st.text(max_size=8), max_size=5))
def test_a_list_splits_into_as_many_values_as_there_are_devices(serials: list[str]) -> None:
    rendered = render_all(parse_template("{serials}"), [{"serial": serial} for serial in serials])
    assert [part.replace("%2C", ",") for part in rendered.split(",")] == (
        serials or [""]
    ) or "%2C" in "".join(serials)


@given(st.text(max_size=12), st.text(max_size=12))
def test_a_rendered_path_is_in_normal_form_and_stays_where_it_is(first: str, second: str) -> None:
    template = parse_template("/data/{serial}{model}/x.{serial}")
    path = render_one(template, {"serial": first, "model": second}, Writing.PATH)
    if isinstance(path, Missing):
        assert not (first and second)
    else:
        assert posixpath.normpath(path) == path
        assert path.startswith("/data/")
        assert path.count("/") == 3
        assert re.fullmatch(r"[A-Za-z0-9._:+@/-]+", path)


def faults(text: str, kind: str = "usb", place: TemplatePlace = TemplatePlace.ONE) -> list[str]:
    return list(template_faults(parse_template(text), kind, place))


@pytest.mark.parametrize("singular", sorted(PLURALS))
def test_the_wrong_number_is_told_the_right_one(singular: str) -> None:
    rest = ".x" if singular == "attr" else ""
    plural = PLURALS[singular]
    kind = "net" if singular == "interface" else "nvidia" if singular in {"uuid", "pciAddress"} else "usb"
    assert faults(f"{{{singular}{rest}}}", kind, TemplatePlace.ALL) == [
        f"{{{singular}{rest}}} stands for one device; write {{{plural}{rest}}}"
    ]
    assert faults(f"{{{plural}{rest}}}", kind) == [
        f"{{{plural}{rest}}} stands for all devices; write {{{singular}{rest}}}"
    ]
    assert faults(f"{{{singular}{rest}}}", kind) == []
    assert faults(f"{{{plural}{rest}}}", kind, TemplatePlace.ALL) == []


@pytest.mark.parametrize(
    ("text", "place", "fault"),
    [
        (
            "{count}",
            TemplatePlace.ONE,
            "{count} is about all devices of a container, and this text is about one; leave it out",
        ),
        (
            "{json}",
            TemplatePlace.ONE,
            "{json} is about all devices of a container, and this text is about one; leave it out",
        ),
        ("{index}", TemplatePlace.ID, "{index} has no value here; known here: {file} {hostPath} {numaNode}"),
        ("{id}", TemplatePlace.ID, "{id} has no value here; known here: {file} {hostPath} {numaNode}"),
        ("{ids}", TemplatePlace.ID, "{ids} has no value here; known here: {file} {hostPath} {numaNode}"),
        (
            "{index}",
            TemplatePlace.PROBE,
            "{index} has no value here; known here: {file} {hostPath} {id} {numaNode}",
        ),
        (
            "{containerPath}",
            TemplatePlace.CONTAINER_PATH,
            "{containerPath} has no value here; known here: {file} {hostPath} {id} {index} {numaNode}",
        ),
        (
            "{serials}",
            TemplatePlace.ALL,
            (
                "{serials} has no value here; known here: {containerPaths} {count} {files} {hostPaths} {ids} "
                "{indexes} {json} {numaNodes}"
            ),
        ),
        ("{hostpath}", TemplatePlace.ONE, "{hostpath} is not known; did you mean {hostPath}?"),
        ("{host_path}", TemplatePlace.ONE, "{host_path} is not known; did you mean {hostPath}?"),
        ("{path}", TemplatePlace.ONE, "{path} is not known; did you mean {hostPath}?"),
        ("{paths}", TemplatePlace.ALL, "{paths} is not known; did you mean {hostPaths}?"),
        ("{indices}", TemplatePlace.ALL, "{indices} is not known; did you mean {indexes}?"),
        (
            "{zzz}",
            TemplatePlace.ONE,
            "{zzz} is not known; known here: {containerPath} {file} {hostPath} {id} {index} {numaNode}",
        ),
        ("{file.x}", TemplatePlace.ONE, "{file.x} takes nothing after the dot; write {file}"),
        (
            "{containerPath.x}",
            TemplatePlace.ONE,
            "{containerPath.x} needs a device of several nodes; discover.path has one; write {containerPath}",
        ),
    ],
)
def test_for_a_path_each_wrong_variable_has_its_sentence(text: str, place: TemplatePlace, fault: str) -> None:
    assert faults(text, "path", place) == [fault]


def test_an_attribute_needs_its_name() -> None:
    assert faults("{attr}") == ["{attr} needs the attribute's name, as in {attr.serial}"]
    assert faults("{attrs}", place=TemplatePlace.ALL) == [
        "{attrs} needs the attribute's name, as in {attrs.serial}"
    ]


def test_every_wrong_variable_is_named_once() -> None:
    assert faults("{id} {id} {files} {ids}", "path", TemplatePlace.ALL) == [
        "{id} stands for one device; write {ids}"
    ]


def test_where_the_kind_could_not_be_read_every_variable_may_stand() -> None:
    assert faults("{serial}{uuid}{interface}", "") == []


def test_the_table_of_kinds_has_only_known_variables() -> None:
    assert all(variables <= set(PLURALS) for variables in VARIABLES_OF_KIND.values())
    assert set(VARIABLES_OF_KIND) == {"path", "bundle", "usb", "pci", "sysfs", "net", "nvidia", "static"}
