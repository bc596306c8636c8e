"""Which variables may stand where: the wrong number, the wrong place, the wrong kind, the wrong word."""

from __future__ import annotations

import pytest

from devplug.daemon.grammar.templates import PLURALS, parse_template
from devplug.daemon.grammar.variables import VARIABLES_OF_KIND, Place, template_faults


def faults(text: str, kind: str = "usb", place: Place = Place.ONE) -> list[str]:
    return list(template_faults(parse_template(text), kind, place))


@pytest.mark.parametrize("singular", sorted(PLURALS))
def test_the_wrong_number_is_told_the_right_one(singular: str) -> None:
    rest = ".x" if singular == "attr" else ""
    plural = PLURALS[singular]
    kind = "net" if singular == "interface" else "nvidia" if singular in {"uuid", "pciAddress"} else "usb"
    assert faults(f"{{{singular}{rest}}}", kind, Place.ALL) == [
        f"{{{singular}{rest}}} is one; write {{{plural}{rest}}}",
    ]
    assert faults(f"{{{plural}{rest}}}", kind) == [f"{{{plural}{rest}}} is all; write {{{singular}{rest}}}"]
    assert faults(f"{{{singular}{rest}}}", kind) == []
    assert faults(f"{{{plural}{rest}}}", kind, Place.ALL) == []


@pytest.mark.parametrize(
    ("text", "place", "fault"),
    [
        ("{count}", Place.ONE, "{count} is about all devices of a container; here stands one device"),
        ("{json}", Place.ONE, "{json} is about all devices of a container; here stands one device"),
        ("{index}", Place.ID, "{index} has no value here; known here: {file} {hostPath} {numaNode}"),
        ("{id}", Place.ID, "{id} has no value here; known here: {file} {hostPath} {numaNode}"),
        ("{ids}", Place.ID, "{ids} has no value here; known here: {file} {hostPath} {numaNode}"),
        ("{index}", Place.PROBE, "{index} has no value here; known here: {file} {hostPath} {id} {numaNode}"),
        (
            "{containerPath}",
            Place.CONTAINER_PATH,
            "{containerPath} has no value here; known here: {file} {hostPath} {id} {index} {numaNode}",
        ),
        (
            "{serials}",
            Place.ALL,
            (
                "{serials} has no value here; known here: {containerPaths} {count} {files} "
                "{hostPaths} {ids} {indexes} "
                "{json} {numaNodes}"
            ),
        ),
        ("{hostpath}", Place.ONE, "{hostpath} is not known; did you mean {hostPath}?"),
        ("{host_path}", Place.ONE, "{host_path} is not known; did you mean {hostPath}?"),
        ("{path}", Place.ONE, "{path} is not known; did you mean {hostPath}?"),
        ("{paths}", Place.ALL, "{paths} is not known; did you mean {hostPaths}?"),
        ("{indices}", Place.ALL, "{indices} is not known; did you mean {indexes}?"),
        (
            "{zzz}",
            Place.ONE,
            "{zzz} is not known; known here: {containerPath} {file} {hostPath} {id} {index} {numaNode}",
        ),
        ("{file.x}", Place.ONE, "{file.x} takes nothing after the dot; write {file}"),
        (
            "{containerPath.x}",
            Place.ONE,
            "{containerPath.x} needs a device of several nodes; discover.path has one; write {containerPath}",
        ),
    ],
)
def test_for_a_path_each_wrong_variable_has_its_sentence(text: str, place: Place, fault: str) -> None:
    assert faults(text, "path", place) == [fault]


def test_an_attribute_needs_its_name() -> None:
    assert faults("{attr}") == ["{attr} needs the attribute's name, as in {attr.serial}"]
    assert faults("{attrs}", place=Place.ALL) == ["{attrs} needs the attribute's name, as in {attrs.serial}"]


def test_every_wrong_variable_is_named_once() -> None:
    assert faults("{id} {id} {files} {ids}", "path", Place.ALL) == ["{id} is one; write {ids}"]


def test_where_the_kind_could_not_be_read_every_variable_may_stand() -> None:
    assert faults("{serial}{uuid}{interface}", "") == []


def test_the_table_of_kinds_has_only_known_variables() -> None:
    assert all(variables <= set(PLURALS) for variables in VARIABLES_OF_KIND.values())
    assert set(VARIABLES_OF_KIND) == {"path", "bundle", "usb", "pci", "sysfs", "net", "nvidia", "static"}
