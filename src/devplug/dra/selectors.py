"""Selectors: CEL expressions, compiled once and evaluated against devices. Pure.

The evaluation is Google's C++ CEL, of the extra `dra`, loaded with the first expression. `device` has its
driver, attributes, capacity and allowMultipleAllocations (D67), and the functions of `cel_functions`.

What differs from Kubernetes, because the library does not offer it: expressions with two-variable
comprehensions, `format.*()` and `indexOf` of a list are taken but cannot be evaluated; a method on a value of
the wrong kind, as `isLessThan` of a version and a quantity, fails with a shorter text. The cost limit is
estimated: from the text, by the nesting of comprehensions with 32 entries for each map, and by `cel_sizes`.
At run time there is only the library's own, of rounds (D71). `size(device.attributes)` counts a domain that
the expression looked up in vain.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from devplug.dra.cel_functions import FUNCTIONS, KINDS, quantity_value, version_value
from devplug.dra.cel_sizes import exceeds_limit
from devplug.dra.regular_expressions import is_pattern
from devplug.errors import DevplugError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.dra.objects import Attribute, Device

_MOST_COST: Final = 1_000_000
_ENTRIES: Final = 32
"""How many attributes and capacities a device can have, so how often a loop over them goes round."""

_LOOP: Final = re.compile(
    r"\.(?:all|exists|exists_one|existsOne|map|filter|transformList|transformMap|transformMapEntry)\("
)
_TOKEN: Final = re.compile(r"\w+|[^\w\s]+")
_LITERAL: Final = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
_PATTERN: Final = re.compile(r"""\.matches\(\s*(r?)("((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
_UNDECLARED: Final = re.compile(r"undeclared reference to '(\w+)'")
_UNKNOWN_FIELD: Final = re.compile(r"undeclared reference to 'device\.(\w+)' \(in container ''\)")
_NOT_OFFERED: Final = frozenset(
    ("format", "transformList", "transformMap", "transformMapEntry", "existsOne", "all", "exists")
)
"""What Kubernetes has and the library lacks: functions, and macros with two variables."""

_NO_KEY: Final = re.compile(r'NOT_FOUND: Key not found in map : "?(.*?)"?$', re.DOTALL)
_NO_OVERLOAD: Final = re.compile(
    r"No matching overloads found : (?:\((?P<on>.*)\)\.)?(?P<name>\w+)\((?P<by>.*)\)"
)
_OUT_OF_BOUNDS: Final = re.compile(r"Index error: index=(-?\d+) size=\d+")
_OUT_OF_ROUNDS: Final = "Iteration budget exceeded"
_WRITTEN_LOOP: Final = re.compile(r"\[([\w\s.,-]+)\]\.(all|exists)\(\s*(\w+)\s*,(.*)\)", re.DOTALL)
_STATUS: Final = re.compile(r"^[A-Z_]+: ")
_TEXTS: Final = {"divide by zero": "division by zero", "modulus by zero": "modulus by zero"}

_TYPE_NAMES: Final = {
    "BOOL": "bool",
    "BYTES": "bytes",
    "DOUBLE": "double",
    "DURATION": "google.protobuf.Duration",
    "DYN": "dyn",
    "INT": "int",
    "NULL": "null_type",
    "STRING": "string",
    "TIMESTAMP": "google.protobuf.Timestamp",
    "TYPE": "type",
    "UINT": "uint",
}


class SelectorError(DevplugError):
    """A selector could not be compiled, or failed for a device: the end of the scheduler's sentence."""


class MissingCelError(DevplugError):
    """The CEL library is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "selectors of devices need the package cel-expr-python, which is not installed: "
            'pip install "devplug[dra]"; it has wheels for Linux on x86_64, macOS on arm64 and Windows'
        )


class Selectors(Protocol):
    """Whoever evaluates selectors."""

    def matches(self, expression: str, device: Device) -> bool:
        """Whether a device is one that an expression selects; raises `SelectorError`."""


class CelSelectors:
    """The selectors of a cluster; it lives as long as the cluster does. Each is compiled once.

    What a selector finds about a device is kept by the device.
    """

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}
        """By expression: the library's, or the text of its problem."""

    def matches(self, expression: str, device: Device) -> bool:
        """Whether an expression selects a device.

        Raises `SelectorError` with the text that the scheduler prints, and `MissingCelError`.
        """
        verdict = device.verdicts.get(expression)
        if verdict is None:
            verdict = device.verdicts[expression] = self._evaluated(expression, device)
        if isinstance(verdict, str):
            raise SelectorError(verdict)
        return bool(verdict)

    def _evaluated(self, expression: str, device: Device) -> bool | str:
        compiled = self._compiled.get(expression)
        if compiled is None:
            compiled = self._compiled[expression] = _compile(expression)
        if isinstance(compiled, str):
            return compiled
        data = _activation(device)
        try:
            result = compiled.eval(data=data)
        except RuntimeError as error:
            return (
                self._item_by_item(expression, device)
                if _OUT_OF_ROUNDS in str(error)
                else _failed(str(error))
            )
        missing = None
        # An unknown domain has no attributes and no capacity (D68), and the library's maps have no defaults.
        while (kind := result.type().name()) == "ERROR":
            found = _NO_KEY.match(str(result.value()))
            if found is None or found[1] == missing:
                return _failed(str(result.value()))
            missing = found[1]
            for name in ("device.attributes", "device.capacity"):
                data = {**data, name: {missing: {}, **data[name]}}
            result = compiled.eval(data=data)
        if kind != "BOOL":
            return f"CEL runtime error: {_no_bool(kind, result.plain_value())}"
        return bool(result.value())

    def _item_by_item(self, expression: str, device: Device) -> bool | str:
        """Evaluate a loop over a list that is written out, of which the library did not reach the end.

        It stops after 10,000 rounds, and the real one where the cost is a million (D71).
        """
        found = _WRITTEN_LOOP.fullmatch(expression.strip())
        if found is None:
            return _failed("actual cost limit exceeded")
        items, word, name, body = found.groups()
        verdicts = [self._evaluated(f"cel.bind({name}, {item}, {body})", device) for item in items.split(",")]
        if (word == "exists") in verdicts:
            return word == "exists"
        return next((one for one in verdicts if isinstance(one, str)), word == "all")


def problem_of(expression: str) -> str:
    """Return why the API server would not take an expression, or nothing.

    `compilation failed: ERROR: <input>:LINE:COLUMN: …`, with the line and a caret, or that it is no bool.
    Raises `MissingCelError`.
    """
    try:
        returned = _environment(is_check=True).compile(expression).return_type().name()
    except RuntimeError as error:
        text = _compile_text(str(error), expression)
        if _is_not_offered(text):
            return ""
        return f"compilation failed: {text}"
    if returned not in {"BOOL", "DYN"}:
        return f"must evaluate to bool or the unknown type, not {_type_name(returned)}"
    for found in _PATTERN.finditer(expression):
        if not is_pattern(found[3] or found[4] or ""):
            where, caret = _position(expression, found.start(2))
            return f"compilation failed: ERROR: <input>:{where}: invalid matches argument{caret}"
    return ""


def is_too_complex(expression: str) -> bool:
    """Whether an expression exceeds the cost limit: by its text, or by what it may make.

    Raises `MissingCelError`.
    """
    if _cost(_LITERAL.sub('""', expression)) > _MOST_COST:
        return True
    try:
        return exceeds_limit(_environment(is_check=False).compile(expression).serialize())
    except RuntimeError:
        return False


# ── compiling ──

_environments: dict[bool, Any] = {}
"""By whether it is the one for checks: in it our kinds are types of their own, as in Kubernetes."""


def _compile(expression: str) -> Any:  # noqa: ANN401 -- the library has no types
    """Return the library's form of an expression, or a text with the reason why it is not evaluated."""
    if problem := problem_of(expression):
        return f"CEL compile error: {problem}"
    try:
        compiled = _environment(is_check=False).compile(expression)
    except RuntimeError as error:
        return f"CEL compile error: compilation failed: {_compile_text(str(error), expression)}"
    return _failed("actual cost limit exceeded") if exceeds_limit(compiled.serialize()) else compiled


def _environment(*, is_check: bool) -> Any:  # noqa: ANN401
    if is_check not in _environments:
        _environments[is_check] = _made(is_check=is_check)
    return _environments[is_check]


def _made(*, is_check: bool) -> Any:  # noqa: ANN401
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
    except ImportError as error:
        raise MissingCelError from error
    types = {
        "bool": cel.Type.BOOL,
        "double": cel.Type.DOUBLE,
        "dyn": cel.Type.DYN,
        "int": cel.Type.INT,
        "list": cel.Type.LIST,
        "map": cel.Type.MAP,
        "string": cel.Type.STRING,
        **{kind: cel.Type.AbstractType(name) if is_check else cel.Type.MAP for kind, name in KINDS.items()},
    }
    overloads: dict[str, dict[tuple[Any, ...], Any]] = {}
    for one in FUNCTIONS:
        parameters = [types[name] for name in one.parameters]
        signature = one.is_member, *(kind.name() for kind in parameters)
        identifier = "_".join((one.name.replace(".", "_"), *one.parameters))
        overloads.setdefault(one.name, {}).setdefault(
            signature, cel.Overload(identifier, types[one.returns], parameters, one.is_member, one.call)
        )
    domains = {"device.attributes": cel.Type.DYN, "device.capacity": types["quantity"]}
    return cel.NewEnv(
        variables={
            "device.driver": cel.Type.STRING,
            "device.allowMultipleAllocations": cel.Type.BOOL,
            **{
                name: cel.Type.Map(cel.Type.STRING, cel.Type.Map(cel.Type.STRING, kind))
                for name, kind in domains.items()
            },
        },
        extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings(), ext_strings.ExtStrings()],
        functions=[cel.FunctionDecl(name, list(found.values())) for name, found in overloads.items()],
    )


def _compile_text(text: str, expression: str) -> str:
    """Return an error of the library as the API server words it."""
    text = _STATUS.sub("", text).removesuffix(" [INVALID_ARGUMENT]")
    if not expression.strip():
        text = text.partition("\n")[0].replace("<input>:1:1:", "<input>:1:0:")
    return _UNKNOWN_FIELD.sub(r"undefined field '\1'", text)


def _is_not_offered(text: str) -> bool:
    is_of_list = "ndexOf' applied to '(list" in text
    return is_of_list or any(name in _NOT_OFFERED for name in _UNDECLARED.findall(text))


def _position(expression: str, at: int) -> tuple[str, str]:
    """Return line and column of a place in an expression, and its line with a caret below the place."""
    start = expression.rfind("\n", 0, at) + 1
    line = expression[start:].partition("\n")[0]
    number = expression.count("\n", 0, at) + 1
    return f"{number}:{at - start + 1}", f"\n | {line}\n | {'.' * (at - start)}^"


def _cost(text: str) -> int:
    """Return about how many steps a text takes: its words and signs, those of a loop as often as it turns."""
    found = _LOOP.search(text)
    if found is None:
        return len(_TOKEN.findall(text))
    depth, end = 1, found.end()
    while end < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    head = text[: found.start()]
    listed = re.search(r"\[([^\[\]]*)\]$", head)
    turns = listed[1].count(",") + 1 if listed and "," in listed[1] else _ENTRIES
    return _cost(head) + turns * _cost(text[found.end() : end - 1]) + _cost(text[end:])


# ── evaluating ──


def _activation(device: Device) -> Mapping[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name in sorted(device.attributes, key=_is_qualified):
        domain, identifier = _qualified(name, device.id.driver)
        attributes.setdefault(domain, {})[identifier] = _value(device.attributes[name])
    for name in sorted(device.capacity, key=_is_qualified):
        domain, identifier = _qualified(name, device.id.driver)
        capacity.setdefault(domain, {})[identifier] = quantity_value(device.capacity[name].value)
    return {
        "device.driver": device.id.driver,
        "device.attributes": attributes,
        "device.capacity": capacity,
        "device.allowMultipleAllocations": device.is_shareable,
    }


def _is_qualified(name: str) -> bool:
    return "/" in name


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _value(found: Attribute) -> object:
    return version_value(str(found.value)) if found.kind == "version" else found.value


def _failed(text: str) -> str:
    return f"CEL runtime error: {_runtime_text(text)}"


def _runtime_text(text: str) -> str:
    """Return an error of the library as cel-go words it."""
    if found := _NO_KEY.match(text):
        return f"no such key: {found[1]}"
    if found := _NO_OVERLOAD.search(text):
        if found["name"].startswith("_"):
            return "no such overload"
        kinds = ", ".join(part for part in (found["on"], found["by"]) if part).replace("int64", "int")
        return f"no such overload: {found['name']}({kinds})"
    if "No matching overloads found" in text:
        return "no such overload"
    if found := _OUT_OF_BOUNDS.search(text):
        return f"index out of bounds: {found[1]}"
    text = _STATUS.sub("", text)
    return _TEXTS.get(text, text)


def _no_bool(kind: str, value: object) -> str:
    name = _type_name(kind)
    if isinstance(value, dict) and len(value) == 1 and (ours := KINDS.get(next(iter(value)))):
        name = ours
        detail = f"type conversion error from '{ours.rpartition('.')[2]}' to 'bool'"
    elif name == "string":
        detail = "unsupported native conversion from string to 'bool'"
    else:
        detail = f"unsupported type conversion from '{name}' to bool"
    return f"CEL result of type {name} could not be converted to bool: {detail}"


def _type_name(kind: str) -> str:
    head = kind.partition("<")[0]
    return _TYPE_NAMES.get(head, head.lower() if head.isupper() else head)
