"""The functions of Kubernetes in CEL: of quantities, versions, URLs, addresses, lists, sets, texts. Pure.

What they return is a map with one key, the kind, because the library takes no objects of ours: the quantity
`1Gi` is `{"quantity": "1073741824"}`, and equal quantities are equal maps. Errors are `ValueError`s with
the texts of Kubernetes where those are known.
"""

from __future__ import annotations

import ipaddress
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import SplitResult, parse_qs, urlsplit

from devplug.dra.regular_expressions import found_all
from devplug.dra.semver import Semver, SemverError
from devplug.k8s.quantity import Quantity, QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS: Final = {
    "quantity": "kubernetes.Quantity",
    "semver": "kubernetes.Semver",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
}
"""The kinds of our values, and what Kubernetes calls their types."""

_Value: TypeAlias = dict[str, str]
_LARGEST: Final = 2**63


class Overload(NamedTuple):
    """One way to call a function. Types are CEL's own, our kinds, and `dyn` for a result of any type."""

    name: str
    parameters: tuple[str, ...]
    returns: str
    call: Callable[..., Any]
    is_member: bool = True


# ── quantities ──


def quantity_value(found: Quantity) -> _Value:
    """Return a quantity as the value that selectors see."""
    return {"quantity": str(found.number)}


def _quantity(text: str) -> _Value:
    try:
        return quantity_value(Quantity.parse(text))
    except QuantityError as error:
        raise ValueError(error.fault) from error


def _is_quantity(text: str) -> bool:
    return _succeeds(lambda: Quantity.parse(text), QuantityError)


@lru_cache(maxsize=4096)
def _fraction(text: str) -> Fraction:
    return Fraction(text)


def _number(found: _Value | int) -> Fraction:
    return Fraction(found) if isinstance(found, int) else _fraction(_text(found["quantity"]))


def _is_integer(found: _Value) -> bool:
    number = _number(found)
    return number.denominator == 1 and -_LARGEST <= number < _LARGEST


def _as_integer(found: _Value) -> int:
    if not _is_integer(found):
        raise ValueError("cannot convert value to integer")
    return int(_number(found))


# ── versions ──


def version_value(text: str) -> _Value:
    """Return a version as the value that selectors see; raises `SemverError`."""
    return {"semver": str(Semver.parse(text))}


def _semver(text: str, is_lenient: bool = False) -> _Value:  # noqa: FBT001, FBT002 -- as CEL calls it
    return {"semver": str(Semver.parse(text, is_lenient=is_lenient))}


def _is_semver(text: str, is_lenient: bool = False) -> bool:  # noqa: FBT001, FBT002
    return _succeeds(lambda: Semver.parse(text, is_lenient=is_lenient), SemverError)


def _version(found: _Value) -> Semver:
    return Semver.parse(_text(found["semver"]))


# ── what quantities and versions share ──


def _compare(one: _Value, other: _Value) -> int:
    if "quantity" in one and "quantity" in other:
        left, right = _number(one), _number(other)
        return (left > right) - (left < right)
    if "semver" in one and "semver" in other:
        before, after = _version(one), _version(other)
        return (before > after) - (before < after)
    raise ValueError("no such overload")


# ── URLs and addresses ──


def _url(text: str) -> _Value:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")):
        raise ValueError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
        )
    return {"url": text}


def _split(found: _Value) -> SplitResult:
    return urlsplit(_text(found["url"]))


def _host(found: _Value) -> str:
    return _split(found).netloc.rpartition("@")[2]


def _hostname(found: _Value) -> str:
    return _split(found).hostname or ""


def _port(found: _Value) -> str:
    port = _split(found).port
    return "" if port is None else str(port)


def _ip(text: str) -> _Value:
    try:
        return {"ip": str(ipaddress.ip_address(text))}
    except ValueError as error:
        raise ValueError(f'IP Address "{text}" parse error during conversion from string') from error


def _address(found: _Value | str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(found if isinstance(found, str) else _text(found["ip"]))


def _cidr(text: str) -> _Value:
    try:
        ipaddress.ip_interface(text)
    except ValueError as error:
        raise ValueError(f'network address parse error during conversion from string: "{text}"') from error
    if "/" not in text:
        raise ValueError(f'network address parse error during conversion from string: "{text}"')
    return {"cidr": text}


def _interface(found: _Value | str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return ipaddress.ip_interface(found if isinstance(found, str) else _text(found["cidr"]))


def _contains_network(one: _Value, other: _Value | str) -> bool:
    outer, inner = _interface(one).network, _interface(other).network
    return (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and inner.network_address in outer
    )


# ── lists, sets, regular expressions ──


def _plain(found: Any) -> Any:  # noqa: ANN401 -- any CEL value
    return found.plain_value() if hasattr(found, "plain_value") else found


def _text(found: Any) -> str:  # noqa: ANN401
    return str(_plain(found))


def _items(found: list[Any]) -> list[Any]:
    return [_plain(one) for one in found]


def _extreme(word: str, choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def chosen(found: list[Any]) -> Any:  # noqa: ANN401
        if not found:
            raise ValueError(f"{word} called on empty list")
        return choose(_items(found))

    return chosen


def _contains(one: list[Any], other: list[Any]) -> bool:
    items = _items(one)
    return all(wanted in items for wanted in _items(other))


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    return list(islice(found_all(text, pattern), None if most < 0 else most))


def _succeeds(act: Callable[[], object], error: type[Exception]) -> bool:
    try:
        act()
    except error:
        return False
    return True


FUNCTIONS: Final = (
    Overload("quantity", ("string",), "quantity", _quantity, is_member=False),
    Overload("isQuantity", ("string",), "bool", _is_quantity, is_member=False),
    Overload("sign", ("quantity",), "int", lambda one: (_number(one) > 0) - (_number(one) < 0)),
    Overload("isInteger", ("quantity",), "bool", _is_integer),
    Overload("asInteger", ("quantity",), "int", _as_integer),
    Overload("asApproximateFloat", ("quantity",), "double", lambda one: float(_number(one))),
    *(
        Overload(name, ("quantity", kind), "quantity", call)
        for kind in ("quantity", "int")
        for name, call in (
            ("add", lambda one, other: {"quantity": str(_number(one) + _number(other))}),
            ("sub", lambda one, other: {"quantity": str(_number(one) - _number(other))}),
        )
    ),
    Overload("semver", ("string",), "semver", _semver, is_member=False),
    Overload("semver", ("string", "bool"), "semver", _semver, is_member=False),
    Overload("isSemver", ("string",), "bool", _is_semver, is_member=False),
    Overload("isSemver", ("string", "bool"), "bool", _is_semver, is_member=False),
    Overload("major", ("semver",), "int", lambda one: _version(one).major),
    Overload("minor", ("semver",), "int", lambda one: _version(one).minor),
    Overload("patch", ("semver",), "int", lambda one: _version(one).patch),
    *(
        Overload(name, (kind, kind), returns, call)
        for kind in ("quantity", "semver")
        for name, returns, call in (
            ("compareTo", "int", _compare),
            ("isGreaterThan", "bool", lambda one, other: _compare(one, other) > 0),
            ("isLessThan", "bool", lambda one, other: _compare(one, other) < 0),
        )
    ),
    Overload("url", ("string",), "url", _url, is_member=False),
    Overload(
        "isURL", ("string",), "bool", lambda text: _succeeds(lambda: _url(text), ValueError), is_member=False
    ),
    Overload("getScheme", ("url",), "string", lambda one: _split(one).scheme),
    Overload("getHost", ("url",), "string", _host),
    Overload("getHostname", ("url",), "string", _hostname),
    Overload("getPort", ("url",), "string", _port),
    Overload("getEscapedPath", ("url",), "string", lambda one: _split(one).path),
    Overload("getQuery", ("url",), "map", lambda one: parse_qs(_split(one).query, keep_blank_values=True)),
    Overload("ip", ("string",), "ip", _ip, is_member=False),
    Overload(
        "isIP", ("string",), "bool", lambda text: _succeeds(lambda: _ip(text), ValueError), is_member=False
    ),
    Overload("ip.isCanonical", ("string",), "bool", lambda text: _ip(text)["ip"] == text, is_member=False),
    Overload("family", ("ip",), "int", lambda one: _address(one).version),
    Overload("isUnspecified", ("ip",), "bool", lambda one: _address(one).is_unspecified),
    Overload("isLoopback", ("ip",), "bool", lambda one: _address(one).is_loopback),
    Overload("isLinkLocalUnicast", ("ip",), "bool", lambda one: _address(one).is_link_local),
    Overload(
        "isGlobalUnicast",
        ("ip",),
        "bool",
        lambda one: (
            not (
                _address(one).is_unspecified
                or _address(one).is_loopback
                or _address(one).is_multicast
                or _address(one).is_link_local
            )
        ),
    ),
    Overload("cidr", ("string",), "cidr", _cidr, is_member=False),
    Overload(
        "isCIDR",
        ("string",),
        "bool",
        lambda text: _succeeds(lambda: _cidr(text), ValueError),
        is_member=False,
    ),
    Overload("ip", ("cidr",), "ip", lambda one: {"ip": str(_interface(one).ip)}),
    Overload("masked", ("cidr",), "cidr", lambda one: {"cidr": str(_interface(one).network)}),
    Overload("prefixLength", ("cidr",), "int", lambda one: _interface(one).network.prefixlen),
    *(
        Overload(
            "containsIP",
            ("cidr", kind),
            "bool",
            lambda one, other: _address(other) in _interface(one).network,
        )
        for kind in ("ip", "string")
    ),
    *(Overload("containsCIDR", ("cidr", kind), "bool", _contains_network) for kind in ("cidr", "string")),
    Overload("find", ("string", "string"), "string", lambda text, one: next(found_all(text, one), "")),
    Overload("findAll", ("string", "string"), "list", _find_all),
    Overload("findAll", ("string", "string", "int"), "list", _find_all),
    Overload("isSorted", ("list",), "bool", lambda found: _items(found) == sorted(_items(found))),
    Overload("sum", ("list",), "dyn", lambda found: sum(_items(found))),
    Overload("min", ("list",), "dyn", _extreme("min", min)),
    Overload("max", ("list",), "dyn", _extreme("max", max)),
    Overload("sets.contains", ("list", "list"), "bool", _contains, is_member=False),
    Overload(
        "sets.equivalent",
        ("list", "list"),
        "bool",
        lambda one, other: _contains(one, other) and _contains(other, one),
        is_member=False,
    ),
    Overload(
        "sets.intersects",
        ("list", "list"),
        "bool",
        lambda one, other: any(wanted in _items(one) for wanted in _items(other)),
        is_member=False,
    ),
)
"""All of them; members have what they are called on as the first parameter."""
