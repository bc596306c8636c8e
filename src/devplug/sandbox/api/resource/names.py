"""The names in DRA's kinds: drivers, pools, attributes, requests, and the UUIDs of shares."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.errors import invalid_field, required_field, too_long_field
from devplug.sandbox.api.names import identifier_errors, label_errors, label_key_errors, subdomain_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devplug.sandbox.api.errors import FieldError

_DOMAIN_LIMIT_BYTES: Final = 63
_IDENTIFIER_LIMIT_BYTES: Final = 32
_POOL_LIMIT_BYTES: Final = 253
_HEX: Final = "[0-9a-fA-F]"
_UUID: Final = re.compile(f"{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}")
_URN: Final = "urn:uuid:"


def driver_errors(name: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps `name` from being a driver's: a DNS subdomain, in either case (D43)."""
    if not name:
        yield required_field(place)
        return
    if len(name.encode()) > _DOMAIN_LIMIT_BYTES:
        yield too_long_field(place, _DOMAIN_LIMIT_BYTES)
    yield from (invalid_field(place, name, fault) for fault in subdomain_errors(name.lower()))


def pool_errors(name: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps `name` from being a pool's: DNS subdomains with `/` between them (D43)."""
    if not name:
        yield required_field(place)
        return
    if len(name.encode()) > _POOL_LIMIT_BYTES:
        yield too_long_field(place, _POOL_LIMIT_BYTES)
    for part in name.split("/"):
        yield from _each(subdomain_errors, part, place)


def label_name_errors(name: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps `name` from being a DNS label: of a device, a request, a counter."""
    yield from _each(label_errors, name, place)


def required_label_errors(name: str, place: str) -> Iterator[FieldError]:
    """Yield the same, where an empty name is told as a missing one: of counter sets."""
    if name:
        yield from _each(label_errors, name, place)
    else:
        yield required_field(place)


def class_name_errors(name: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps `name` from being the name of a DeviceClass that a request must have."""
    if name:
        yield from _each(subdomain_errors, name, place)
    else:
        yield required_field(place)


def node_name_errors(name: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps `name` from being a node's."""
    yield from _each(subdomain_errors, name, place)


def key_errors(key: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps `key` from being a label's key: of taints, tolerations and conditions."""
    yield from _each(label_key_errors, key, place)


def qualified_name_errors(name: str, place: str, *, needs_domain: bool = False) -> Iterator[FieldError]:
    """Yield what keeps `name` from being an attribute's or a capacity's: `name` or `domain/name`.

    A name with two slashes is taken, as upstream takes it (D44).
    """
    match name.split("/"):
        case [identifier]:
            yield from _identifier_errors(identifier, place)
        case [domain, identifier]:
            if domain:
                yield from driver_errors(domain, place)
            else:
                yield invalid_field(place, "", "the domain must not be empty")
            if identifier:
                yield from _identifier_errors(identifier, place)
            else:
                yield invalid_field(place, "", "the name must not be empty")
    if needs_domain and "/" not in name:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid_field(place, name, why)


def uuid_errors(written: str, place: str) -> Iterator[FieldError]:
    """Yield what keeps a text from being a UUID in lower case (github.com/google/uuid Validate)."""
    if fault := _uuid_fault(written):
        yield invalid_field(place, written, f"error validating uid: {fault}")
    elif len(written) != 36 or written != written.lower():
        form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
        yield invalid_field(place, written, f"uid must be in RFC 4122 normalized form, {form}")


def _uuid_fault(written: str) -> str:
    match len(written.encode()):
        case 32:
            return "" if re.fullmatch(f"{_HEX}{{32}}", written) else "invalid UUID format"
        case 36:
            inner = written
        case 38:
            if not (written.startswith("{") and written.endswith("}")):
                return "invalid bracketed UUID format"
            inner = written[1:-1]
        case 45:
            if written[:9].lower() != _URN:
                return f"invalid urn prefix: {go_quoted(written[:9])}"
            inner = written[9:]
        case length:
            return f"invalid UUID length: {length}"
    return "" if _UUID.fullmatch(inner) else "invalid UUID format"


def _identifier_errors(identifier: str, place: str) -> Iterator[FieldError]:
    if len(identifier.encode()) > _IDENTIFIER_LIMIT_BYTES:
        yield too_long_field(place, _IDENTIFIER_LIMIT_BYTES)
    yield from _each(identifier_errors, identifier, place)


def _each(rule: Callable[[str], list[str]], name: str, place: str) -> Iterator[FieldError]:
    return (invalid_field(place, name, fault) for fault in rule(name))
