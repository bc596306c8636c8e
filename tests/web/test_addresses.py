"""Addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.web.addresses import Address, TcpAddress, UnixAddress, parse_address

WRITTEN = {
    "127.0.0.1:9410": TcpAddress("127.0.0.1", 9410),
    ":9410": TcpAddress("", 9410),
    "[::1]:9410": TcpAddress("::1", 9410),
    "localhost:0": TcpAddress("localhost", 0),
    "node-1.example.org:80": TcpAddress("node-1.example.org", 80),
    "unix:/run/x.sock": UnixAddress("/run/x.sock"),
    "unix:x:1.sock": UnixAddress("x:1.sock"),
}

hosts = st.one_of(
    st.just(""),
    st.ip_addresses().map(str),
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?", fullmatch=True),
)
addresses = st.one_of(
    st.builds(TcpAddress, hosts, st.integers(0, 65535)),
    st.builds(
        UnixAddress,
        st.text(st.characters(exclude_characters="\0"), min_size=1).filter(lambda path: path[-1] != "/"),
    ),
)


@pytest.mark.parametrize("text", WRITTEN)
def test_an_address_is_what_its_text_says(text: str) -> None:
    assert parse_address(text) == WRITTEN[text]


@given(addresses)
def test_the_text_of_an_address_leads_back_to_it(address: Address) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no port"),
        ("9410", "has no port"),
        ("localhost", "has no port"),
        ("localhost:", "has no port from 0 to 65535"),
        ("localhost:http", "has no port from 0 to 65535"),
        ("localhost:-1", "has no port from 0 to 65535"),
        ("localhost:65536", "has no port from 0 to 65535"),
        ("localhost:" + "9" * 5000, "has no port from 0 to 65535"),
        ("localhost:²", "has no port from 0 to 65535"),
        ("::1:9410", "has an IPv6 address without brackets"),
        ("[::1]", "has no port from 0 to 65535"),
        ("[127.0.0.1]:9410", "has no IPv6 address in its brackets"),
        ("[x]:9410", "has no IPv6 address in its brackets"),
        ("a b:9410", "has no host name"),
        ("*:9410", "has no host name"),
        ("http://localhost:9410", "is not HOST:PORT"),
        ("/run/x.sock", "is not HOST:PORT"),
        ("unix:", "names no socket file"),
        ("unix:/run/", "names no socket file"),
        ("unix:/run/\0", "names no socket file"),
    ],
)
def test_what_is_no_address_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_address(text)
    assert "write 127.0.0.1:9410, [::1]:9410, :9410 for all interfaces, or unix:" in str(caught.value)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        (":1", False),
        ("0.0.0.0:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
    ],
)
def test_loopback_is_what_other_machines_cannot_reach(text: str, *, is_loopback: bool) -> None:
    address = parse_address(text)
    assert isinstance(address, TcpAddress)
    assert address.is_loopback is is_loopback
