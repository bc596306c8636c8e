"""The three forms of a patch, chosen by media type; JSON Patch and JSON Merge Patch themselves.

JSON Patch (RFC 6902) is as the API server applies it (evanphx/json-patch v4): a list of operations, in
order. It differs from the RFC where that library does: `replace` makes a field that is not there, an index
may count from the end, and only `replace` and `test` take the whole document as their path.

JSON Merge Patch (RFC 7386) is a map of what is to be, in which null takes a field away.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, same, without_nulls
from devplug.sandbox.api.bounds import DEPTH_LIMIT, TOO_DEEP, TOO_MANY, excess_of, json_size
from devplug.sandbox.api.errors import bad_request, patch_rejected, too_large, unsupported_media_type
from devplug.sandbox.api.strategicpatch import strategic_patched

if TYPE_CHECKING:
    from collections.abc import Callable


_OPERATION_LIMIT: Final = 10_000
"""Most operations of a JSON Patch (apiserver handlers/patch.go maxJSONPatchOperations)."""

_COPY_LIMIT_BYTES: Final = 3 * 1024 * 1024
"""Most that the copies of a JSON Patch may add, as JSON (apiserver server/config.go JSONPatchMaxCopyBytes).

Without it each copy of a map into itself doubles the map: 24 of them make 16 million times its size.
"""

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_MISSING: Final = object()
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


# ── JSON Patch ──


_GO_NAMES: Final = {
    bool: "bool",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def json_patched(original: object, patch: object) -> object:
    """Return `original` with the operations of `patch` applied; raises `StatusError`, and changes neither."""
    if not isinstance(patch, list):
        raise _undecodable(patch, "value", "[]handlers.jsonPatchOp")
    if len(patch) > _OPERATION_LIMIT:
        raise too_large(
            f"The allowed maximum operations in a JSON patch is {_OPERATION_LIMIT}, got {len(patch)}",
        )
    operations = [_decoded(operation) for operation in patch]
    document = _copied(original)
    copied_bytes = 0
    for operation in operations:
        if operation.get("op") == "copy":
            copied_bytes += _copied_bytes(document, operation)
            if copied_bytes > _COPY_LIMIT_BYTES:
                raise patch_rejected(
                    "Unable to complete the copy, the accumulated size increase of copy is "
                    f"{copied_bytes}, exceeding the limit {_COPY_LIMIT_BYTES}"
                )
        document = _applied(document, operation)
    return document


def _copied_bytes(document: object, operation: dict[str, object]) -> int:
    """Return the size of what an operation copies; 0 if the operation will be refused."""
    try:
        value = _found(document, _pointer(operation, "from"))
    except _MissingError:
        return 0
    return 0 if value is _MISSING else json_size(value)


def _copied(value: object, depth: int = 1) -> object:
    """Return a deep copy, so that a change of it changes nothing else."""
    if depth > DEPTH_LIMIT:
        raise patch_rejected(TOO_DEEP)
    if isinstance(value, dict):
        return {key: _copied(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner, depth + 1) for inner in value]
    return value


def _decoded(operation: object) -> dict[str, object]:
    """Return an operation whose words are texts."""
    if not isinstance(operation, dict):
        raise _undecodable(operation, "value", "handlers.jsonPatchOp")
    for word in ("op", "path", "from"):
        if not isinstance(operation.get(word, ""), str | None):
            raise _undecodable(operation[word], f"struct field jsonPatchOp.{word}", "string")
    return operation


def _undecodable(value: object, place: str, form: str) -> Exception:
    what = _GO_NAMES.get(type(value), "null")
    of_type = f"{place} of type {form}"
    return bad_request(f"error decoding patch: json: cannot unmarshal {what} into Go {of_type}")


def _applied(document: object, operation: dict[str, object]) -> object:
    verb = operation.get("op")
    apply = _VERBS.get(verb) if isinstance(verb, str) else None
    if apply is None:
        raise patch_rejected(f"Unexpected kind: {verb if isinstance(verb, str) else 'unknown'}")
    try:
        return apply(document, operation)
    except _MissingError as missing:
        raise patch_rejected(f"{verb} operation does not apply: {missing}") from missing


class _MissingError(Exception):
    """A path leads nowhere, or to nothing that the operation can use."""


def _add(document: object, operation: dict[str, object]) -> object:
    return _changed(document, _pointer(operation, "path"), _put_into(_copied(operation.get("value"))))


def _remove(document: object, operation: dict[str, object]) -> object:
    return _changed(document, _pointer(operation, "path"), _take_from)


def _replace(document: object, operation: dict[str, object]) -> object:
    value = _copied(operation.get("value"))
    if operation.get("path") == "":
        if not isinstance(value, dict | list):
            raise _MissingError("value must be object or array")
        return value
    return _changed(document, _pointer(operation, "path"), _set_into(value))


def _move(document: object, operation: dict[str, object]) -> object:
    value = _found(document, _pointer(operation, "from"))
    without = _changed(document, _pointer(operation, "from"), _take_from)
    return _changed(without, _pointer(operation, "path"), _put_into(value))


def _copy(document: object, operation: dict[str, object]) -> object:
    value = _found(document, _pointer(operation, "from"))
    return _changed(
        document, _pointer(operation, "path"), _put_into(None if value is _MISSING else _copied(value))
    )


def _test(document: object, operation: dict[str, object]) -> object:
    whole = operation.get("path") == ""
    found = document if whole else _found(document, _pointer(operation, "path"))
    if not same(None if found is _MISSING else found, operation.get("value")):
        raise _MissingError(f"testing value {operation.get('path')} failed: test failed")
    return document


_VERBS: Final[dict[str, Callable[[object, dict[str, object]], object]]] = {
    "add": _add,
    "copy": _copy,
    "move": _move,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
}


# ── pointers (RFC 6901) ──


def _pointer(operation: dict[str, object], word: str) -> list[str]:
    """Return the steps of a path; at least one."""
    path = operation.get(word)
    if not isinstance(path, str):
        raise _MissingError(f"operation missing {word} field: missing value")
    steps = path.split("/")
    if len(steps) < 2:
        raise _MissingError(f'doc is missing path: "{path}": missing value')
    return [step.replace("~1", "/").replace("~0", "~") for step in steps[1:]]


def _changed(document: object, steps: list[str], change: Callable[[object, str], None]) -> object:
    """Make `change` to the owner of the last step, and return the document."""
    owner = document
    for step in steps[:-1]:
        owner = _got(owner, step)
        if not isinstance(owner, dict | list):
            raise _MissingError(f"doc is missing {step}: missing value")
    change(owner, steps[-1])
    return document


def _found(document: object, steps: list[str]) -> object:
    """Return what is at the end of the steps; `_MISSING` if only the last step's field is not there."""
    for step in steps[:-1]:
        document = _got(document, step)
    return _got(document, steps[-1])


def _got(owner: object, step: str) -> object:
    if isinstance(owner, dict):
        return owner.get(step, _MISSING)
    if isinstance(owner, list):
        return owner[_index(step, len(owner), len(owner) - 1)]
    raise _MissingError(f"doc is missing {step}: missing value")


def _put_into(value: object) -> Callable[[object, str], None]:
    """Return what adds `value`: a field in a map, an element before another one in a list."""

    def put(owner: object, step: str) -> None:
        if isinstance(owner, dict):
            owner[step] = value
            return
        assert isinstance(owner, list)
        owner.insert(len(owner) if step == "-" else _index(step, len(owner) + 1, len(owner)), value)

    return put


def _set_into(value: object) -> Callable[[object, str], None]:
    """Return what puts `value` in place of a field or an element."""

    def put(owner: object, step: str) -> None:
        if isinstance(owner, dict):
            owner[step] = value
            return
        assert isinstance(owner, list)
        owner[_index(step, len(owner), len(owner) - 1)] = value

    return put


def _take_from(owner: object, step: str) -> None:
    if isinstance(owner, dict):
        if step not in owner:
            raise _MissingError(f"Unable to remove nonexistent key: {step}: missing value")
        del owner[step]
        return
    assert isinstance(owner, list)
    del owner[_index(step, len(owner), len(owner) - 1)]


def _index(step: str, span: int, last: int) -> int:
    """Return the place that `step` names; a negative one counts back from `span`."""
    if not _INDEX.fullmatch(step):
        raise _MissingError(f"value was not a proper array index: '{step}'")
    place = int(step)
    if place > last or place < -span:
        raise _MissingError(f"Unable to access invalid index: {place}: invalid index referenced")
    return place + span if place < 0 else place


# ── JSON Merge Patch ──


def merge_patched(original: Object, patch: Object) -> Object:
    """Return `original` with `patch` merged into it; changes neither. Lists are replaced as a whole.

    Nulls inside new lists are dropped from the maps there, which the RFC leaves and the API server does not
    (evanphx/json-patch v4 merge.go).
    """
    merged = dict(original)
    for key, value in patch.items():
        before = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(before, dict):
            merged[key] = merge_patched(before, value)
        else:
            merged[key] = without_nulls(value)
    return merged


# ── The choice by media type ──


def patched(original: Object, media_type: str, patch: object, kind: str) -> Object:
    """Return an object of `kind` with a decoded patch applied; changes neither, and raises `StatusError`.

    The media type may have parameters. Server-side apply is not among the forms. The result has the bounds of
    a body: many patches make no larger object than one body.
    """
    form = media_type.partition(";")[0].strip()
    if form not in {JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH}:
        raise unsupported_media_type((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))
    result = _patched(original, form, patch, kind)
    if not isinstance(result, dict):
        raise patch_rejected("the patch leaves no object")
    if fault := excess_of(result):
        raise too_large(fault) if fault == TOO_MANY else patch_rejected(fault)
    return result


def _patched(original: Object, form: str, patch: object, kind: str) -> object:
    if form == JSON_PATCH:
        return json_patched(original, patch)
    if not isinstance(patch, dict):
        words = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
        type_name = words.get(type(patch), "null")
        fault = f"json: cannot unmarshal {type_name} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding patch: {fault}" if form == MERGE_PATCH else fault)
    if form == MERGE_PATCH:
        return merge_patched(original, patch)
    return strategic_patched(original, patch, kind)
