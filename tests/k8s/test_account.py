"""Which cluster is meant and as whom it is asked: kubeconfigs by kubectl's rules, and the pod's account."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devplug.k8s.account import Account, chosen_account
from devplug.k8s.errors import ClusterError
from devplug.k8s.kubeconfig import User


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and nothing in the environment that names a cluster."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def written(
    path: Path, *names: str, current: str = "", user: dict[str, Any] | None = None, authority: str = ""
) -> Path:
    """Write a kubeconfig with one context per name, whose server and namespace have the name in them."""
    path.parent.mkdir(exist_ok=True)
    trust = {"certificate-authority": authority} if authority else {}
    config = {
        "clusters": [
            {"name": n, "cluster": {"server": f"https://{n}.test/{path.name}", **trust}} for n in names
        ],
        "users": [{"name": n, "user": user if user is not None else {"token": n}} for n in names],
        "contexts": [
            {"name": n, "context": {"cluster": n, "user": n, "namespace": f"of-{n}"}} for n in names
        ],
        **({"current-context": current} if current else {}),
    }
    path.write_text(json.dumps(config))
    return path


def server(account: Account) -> str:
    return account.cluster.server


def test_a_file_that_is_named_is_used_and_its_context_too(tmp_path: Path) -> None:
    file = written(tmp_path / "named", "a", "b", current="b")
    account = chosen_account(str(file), None)
    assert (server(account), account.namespace) == ("https://b.test/named", "of-b")
    assert account.where == "the cluster of context b"
    assert server(chosen_account(str(file), "a")) == "https://a.test/named"


def test_of_several_files_the_first_that_says_something_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path / "first", "a")
    second = written(tmp_path / "second", "a", "b", current="b")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent::{first}:{second}")
    assert server(chosen_account(None, None)) == "https://b.test/second"
    assert server(chosen_account(None, "a")) == "https://a.test/first"


def test_paths_are_meant_from_the_file_that_they_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    first = written(tmp_path / "first", "a")
    second = written(tmp_path / "one" / "second", "b", current="b", authority="ca.crt")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    assert chosen_account(None, None).cluster.certificate_authority == f"{tmp_path}/one/ca.crt"


def test_without_any_name_the_usual_file_is_used_and_then_the_pods_account(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = tmp_path / "pod"
    pod.mkdir()
    for name, text in (("token", "t"), ("namespace", "mine"), ("ca.crt", "")):
        (pod / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    account = chosen_account(None, None, folder=pod)
    assert (server(account), account.namespace) == ("https://10.0.0.1:443", "mine")
    assert account.advice.startswith("let the ServiceAccount")
    written(home / ".kube" / "config", "usual", current="usual")
    assert server(chosen_account(None, None, folder=pod)) == "https://usual.test/config"


def test_where_no_cluster_is_known_the_error_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(
        ClusterError, match=r"KUBECONFIG is not set .* name a file with --kubeconfig; no more"
    ):
        chosen_account(None, None, folder=tmp_path, besides="; no more")


@pytest.mark.parametrize(
    "content", ["{", "clusters: []", "- a", None], ids=["cut", "empty", "list", "absent"]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "broken"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ClusterError, match=f"cannot use {file}: "):
        chosen_account(str(file), None)
    with pytest.raises(ClusterError, match=f"cannot use context x of {file}: "):
        chosen_account(str(file), "x")


def test_a_context_without_a_user_asks_as_nobody(tmp_path: Path) -> None:
    file = written(tmp_path / "open", "a", current="a")
    config = json.loads(file.read_text())
    del config["contexts"][0]["context"]["user"]
    file.write_text(json.dumps(config))
    account = chosen_account(str(file), None)
    assert account.user == User()


def test_the_paths_of_a_user_are_whole_and_a_command_of_the_path_stays_a_name(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    for command, expected in (("get-token", "get-token"), ("./get-token", f"{tmp_path}/get-token")):
        user = {
            "client-certificate": "me.crt",
            "client-key": "/elsewhere/me.key",
            "exec": {"apiVersion": version, "command": command},
        }
        found = chosen_account(str(written(tmp_path / "file", "a", current="a", user=user)), None).user
        assert (found.client_certificate, found.client_key) == (f"{tmp_path}/me.crt", "/elsewhere/me.key")
        assert found.exec is not None
        assert found.exec.command == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"current-context": None}, "it has no current-context"),
        ({"current-context": "b"}, 'it has no context "b"'),
        ({"clusters": []}, 'its context "a" has a cluster that it has not'),
        ({"users": None}, 'its context "a" has a user that it has not'),
        ({"users": [{"name": "a", "user": {"token": 7}}]}, "ValidationError, it is not a valid kubeconfig"),
    ],
)
def test_what_a_file_lacks_is_told(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = written(tmp_path / "file", "a", current="a")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ClusterError) as caught:
        chosen_account(str(file), None)
    assert str(caught.value) == f"cannot use {file}: {said}"


def test_a_user_shows_no_secret(tmp_path: Path) -> None:
    account = chosen_account(
        str(written(tmp_path / "file", "a", current="a", user={"token": "secret"})), None
    )
    assert account.user.token == "secret"
    assert "secret" not in repr(account)
