"""Which proxy leads to an API server, as Go programs and kubectl choose it."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.proxies import proxy_url

PROXY = "http://proxy.test:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_behind"),
    [
        ("https://api.test", "", True),
        ("https://api.test", "*", False),
        ("https://api.test", "test", False),
        ("https://api.test", "other.test, api.test", False),
        ("https://API.test.", "api.test", False),
        ("https://myapi.test", "api.test", True),
        ("https://api.test", ".test", False),
        ("https://api.test", "*.test", False),
        ("https://api.test", ".api.test", True),
        ("https://api.test:6443", "api.test:6443", False),
        ("https://api.test:6443", "api.test:443", True),
        ("https://api.test", "api.test:443", False),
        ("https://10.1.2.3", "10.0.0.0/8", False),
        ("https://11.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.1.2.3", False),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", False),
        ("https://10.1.2.3:6443", "10.1.2.3:1", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "fd00::1", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "[fd00::1]:1", True),
        ("https://10.1.2.3", "10.0.0.0/nonsense,,", True),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
        ("https://localhost", "", False),
    ],
)
def test_who_is_named_in_no_proxy_or_is_on_this_machine_is_behind_none(
    server: str, no_proxy: str, is_behind: bool
) -> None:
    assert proxy_url(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == (PROXY if is_behind else "")


def test_each_scheme_has_its_own_variable_in_either_case_and_upper_case_first() -> None:
    both = {"HTTPS_PROXY": PROXY, "http_proxy": "other.test:1"}
    assert proxy_url("https://api.test", both) == PROXY
    assert proxy_url("http://api.test", both) == "http://other.test:1"
    assert proxy_url("http://api.test", both | {"HTTP_PROXY": PROXY}) == PROXY
    assert proxy_url("http://api.test", {"HTTPS_PROXY": PROXY}) == ""


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(0, 32))
def test_a_network_covers_just_its_addresses(server: IPv4Address, other: IPv4Address, bits: int) -> None:
    network = ip_network(f"{other}/{bits}", strict=False)
    is_covered = server in network or server.is_loopback
    found = proxy_url(f"https://{server}", {"HTTPS_PROXY": PROXY, "NO_PROXY": str(network)})
    assert found == ("" if is_covered else PROXY)


@given(st.text(), st.text())
def test_whatever_the_variables_say_nothing_breaks(proxy: str, no_proxy: str) -> None:
    found = proxy_url("https://api.test", {"HTTPS_PROXY": proxy, "NO_PROXY": no_proxy})
    assert not found or proxy in found
