"""Who is let in: the token in both its places, hosts and origins, TLS, and the kubeconfig."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.server.auth import admitted, kubeconfig, refuse_web_pages
from devplug.sandbox.server.listener import ServingError, Tls
from tests.sandbox.server.beds import TOKEN, Kubectl, Server, served, unserved

NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as running:
        yield running


def test_the_token_is_taken_in_the_path_and_in_the_header() -> None:
    assert admitted("/secret/api/v1", "", "secret", NOW)[0] == "/api/v1"
    assert admitted("/secret", "", "secret", NOW)[0] == "/"
    assert admitted("/api/v1", "Bearer secret", "secret", NOW)[0] == "/api/v1"
    assert admitted("/api/v1", "bearer  secret ", "secret", NOW)[0] == "/api/v1"
    password = base64.b64encode(b"me:secret").decode()
    assert admitted("/api/v1", f"Basic {password}", "secret", NOW)[0] == "/api/v1"


def test_how_the_server_is_everybody_may_know() -> None:
    for path in ("/version", "/readyz", "/livez/ping", "/healthz"):
        assert admitted(path, "", "secret", NOW)[0] == path


@pytest.mark.parametrize(
    ("path", "authorization", "token"),
    [
        ("/api", "", "secret"),
        ("/secre/api", "", "secret"),
        ("/api/secret", "", "secret"),
        ("/api", "Basic secret", "secret"),
        ("/api", "Basic c2VjcmV0", "secret"),
        ("/versions", "", "secret"),
        ("/api", "Bearer secreté\udc80", "secret"),
        ("//api", "Bearer ", ""),
    ],
)
def test_without_the_token_nobody_is_let_in(path: str, authorization: str, token: str) -> None:
    with pytest.raises(StatusError) as error:
        admitted(path, authorization, token, NOW)
    assert (error.value.code, str(error.value)) == (401, "Unauthorized")


def test_the_server_lets_in_by_token_only(server: Server) -> None:
    assert server.ask("GET", "/api").code == 200
    assert server.ask("GET", f"/{TOKEN}/api", token=None).code == 200
    for path, token in (("/api", None), ("/api", "other"), ("/other/api", None), ("/sandbox/v1/down", None)):
        refused = server.ask("POST", path, token=token)
        assert (refused.code, refused.json["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::1"])
def test_a_name_that_is_not_this_machine_is_refused(host: str) -> None:
    with pytest.raises(StatusError) as error:
        refuse_web_pages({"host": host}, "http")
    assert error.value.code == 403


def test_web_pages_of_others_are_refused_even_with_the_token(server: Server) -> None:
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("GET", "/version", headers={"Origin": own}).code == 200
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        assert server.ask("GET", "/version", headers=headers).code == 403
    refuse_web_pages({"host": "localhost:1"}, "http")
    refuse_web_pages({"host": "[::1]:1", "origin": "http://[::1]:1"}, "http")


def test_a_kubeconfig_names_the_server_and_a_context() -> None:
    told = json.loads(kubeconfig("https://127.0.0.1:1", "t", b"PEM"))
    assert told["current-context"] == "devplug-sandbox"
    assert told["contexts"][0]["context"]["namespace"] == "default"
    assert told["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": "UEVN",
    }


def test_the_server_listens_on_loopback_alone(server: Server) -> None:
    addresses = {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1"}:
        with pytest.raises(OSError), closing(socket.create_connection((str(address), server.port), 2)):
            pass


def test_a_port_that_is_taken_is_told_with_what_to_do(server: Server) -> None:
    other = unserved(port=server.port)
    with pytest.raises(
        ServingError, match=f"cannot listen on 127.0.0.1:{server.port}: Address already in use; choose"
    ):
        other.listen()
    with pytest.raises(ServingError, match="choose another port"):
        unserved(port=70000).listen()


# ── TLS ──


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder: Path = tmp_path_factory.mktemp("tls")
    made = Tls(folder / "cert.pem", folder / "key.pem")
    told = ["-subj", "/CN=sandbox", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
    files = ["-keyout", str(made.key_file), "-out", str(made.cert_file)]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run(["openssl", "req", "-x509", *curve, *told, *files], check=True, capture_output=True)
    return made


def test_kubectl_trusts_the_certificate_and_sends_the_token(tls: Tls, tmp_path: Path) -> None:
    with served(tls=tls) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        assert TOKEN not in server.url
        listed = Kubectl(tmp_path, server.kubeconfig)("get", "namespaces", "-o", "name")
        assert (listed.stdout, listed.returncode) == ("namespace/default\n", 0)
        trusting = ssl.create_default_context()
        with (
            pytest.raises(ssl.SSLCertVerificationError),
            socket.create_connection(("127.0.0.1", server.port)) as plain,
        ):
            trusting.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_certificate_that_is_none_is_told_with_its_files(tls: Tls, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for files in (Tls(wrong, tls.key_file), Tls(tls.cert_file, tmp_path / "missing.pem")):
        with pytest.raises(
            ServingError, match=r"cannot serve TLS with the certificate .*; both are PEM files"
        ):
            unserved(tls=files).listen()
