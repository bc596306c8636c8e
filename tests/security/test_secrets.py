"""What is given to containers and commands, and what a process has of its own, stands in no log or page."""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from devplug.daemon.config.loader import load
from devplug.daemon.events.policy import ReportedState, next_report
from devplug.daemon.service import serve_config
from devplug.errors import RemoteError
from devplug.k8s.account import chosen_account
from devplug.k8s.errors import ClusterError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.logs import FactFormatter, JsonFormatter
from devplug.sandbox.sandboxdir import SandboxDir
from devplug.status import STATUS_SOCKETS, process_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from tests.cli.programs import said_until, started
from tests.waiting import until

GIVEN, CHECKED = "example.com/given", "example.com/checked"
PLACES = ("env", "templated", "annotation", "health", "missing", "release")
"""Where a secret may be put in the file: in all that goes to containers, and in arguments of commands."""

MARK = "s3cr3t"
odd = st.text(st.sampled_from("aé1 '\"\\%$:=,/#{}\t\N{SNOWMAN}"), max_size=8)


def config_of(folder: Path, secrets: dict[str, str]) -> dict[str, Any]:
    """A file in which each of these is where a secret might be put."""
    braced = {place: text.replace("{", "{{").replace("}", "}}") for place, text in secrets.items()}
    given_out = {
        "name": GIVEN,
        "discover": {"path": f"{folder}/nodes/*"},
        "expose": {
            "env": {"TOKEN": braced["env"], "URL": f"http://{braced['templated']}@{{ids}}"},
            "annotations": {"example.com/note": braced["annotation"]},
        },
        "onRelease": {"exec": {"command": ["/bin/false", braced["release"]]}},
    }
    checked = {
        "name": CHECKED,
        "discover": {"static": {"ids": ["c"]}},
        "health": [
            {"exec": {"command": ["/bin/sh", "-c", "exit 1", braced["health"]]}},
            {"exec": {"command": ["/bin/devplug-none", braced["missing"]]}},
        ],
    }
    return {"version": 1, "resources": [given_out, checked]}


@contextmanager
def logged() -> Iterator[list[io.StringIO]]:
    """Everything that is logged while the block lasts, at the lowest level, in both forms."""
    loggers = [logging.getLogger(), logging.getLogger("devplug")]
    levels = [one.level for one in loggers]
    texts = [io.StringIO(), io.StringIO()]
    handlers = [logging.StreamHandler(text) for text in texts]
    for handler, formatter in zip(handlers, (FactFormatter(), JsonFormatter()), strict=True):
        handler.setFormatter(formatter)
        loggers[0].addHandler(handler)
    for one in loggers:
        one.setLevel(logging.DEBUG)
    try:
        yield texts
    finally:
        for handler in handlers:
            loggers[0].removeHandler(handler)
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


async def problems(address: UnixAddress, *, are_wanted: bool) -> None:
    """Wait until the file as it is now is refused, or served."""
    while True:
        config = process_of((await get(address, "/status")).body).config
        assert config is not None
        if bool(config.problems) is are_wanted:
            return


async def lived(folder: Path, config: dict[str, Any]) -> list[str]:
    """Live through all that is told of; return every page, refusal and Event, then what a container got."""
    kubelet, file = Kubelet.under(folder), folder / "devplug.yaml"
    text = yaml.safe_dump(config, allow_unicode=True)
    file.write_text(text)
    told: list[str] = []
    served = serve_config(
        load(text, str(file)),
        plugin_dir=kubelet.plugin_dir,
        pod_resources=folder / "pod-resources" / "kubelet.sock",
        file=file,
    )
    async with kubelet.running(), served:
        await kubelet.wait(lambda: {GIVEN, CHECKED} <= kubelet.capacity().keys())
        await until(lambda: list(kubelet.plugin_dir.glob(STATUS_SOCKETS)))
        address = UnixAddress(str(next(kubelet.plugin_dir.glob(STATUS_SOCKETS))))
        status = await kubelet.admit(Pod("uid-p", "p", containers=(Container("main", {GIVEN: 1}),)))
        assert status.message == ""
        container = repr(kubelet.allocations())
        for socket in kubelet.plugin_dir.glob("devplug-*.sock"):
            async with connected(socket) as peer:
                for ids in ((), ("none",), ("a", "a"), ("a",), ("b",), ("b",), ("c",)):
                    try:
                        await peer.call(ALLOCATE, [ids])
                    except RemoteError as error:
                        told.append(str(error))
        before = process_of((await get(address, "/status")).body)
        (folder / "nodes" / "a").unlink()
        file.write_text(text.replace("version: 1", "version: 7"))
        await problems(address, are_wanted=True)
        config["resources"][0]["expose"]["env"]["TOKEN"] += "-changed"
        file.write_text(yaml.safe_dump(config, allow_unicode=True))
        await problems(address, are_wanted=False)
        await kubelet.restart()
        pages = [await get(address, path) for path in ("/status", "/metrics", "/readyz", "/healthz", "/none")]
        told += [page.body.decode() for page in pages]
        after = process_of((await get(address, "/status")).body)
    first = next_report(ReportedState(), None, before, 100.0)
    told += [repr(first), repr(next_report(first.reported, before, after, 200.0))]
    return [*told, container]


@given(st.lists(odd, min_size=len(PLACES), max_size=len(PLACES)))
@settings(max_examples=settings().max_examples // 8, phases=[Phase.generate])
async def test_what_containers_and_commands_are_given_is_told_to_nobody_else(texts: list[str]) -> None:
    """Whatever it is made of: at every level, in both forms, on every page, in refusals and Events."""
    secrets = {place: f"{MARK}-{place}-{text}" for place, text in zip(PLACES, texts, strict=True)}
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as name, logged() as logs:
        folder = Path(name)
        (folder / "nodes").mkdir()
        for node in ("a", "b"):
            (folder / "nodes" / node).symlink_to("/dev/null")
        *others, container = await lived(folder, config_of(folder, secrets))
    assert f"{MARK}-env" in container
    assert f"{MARK}-templated" in container
    assert f"{MARK}-annotation" in container
    everything = [log.getvalue() for log in logs] + others
    for place in PLACES:
        assert [text for text in everything if f"{MARK}-{place}" in text] == []
    # And it is a life in which much was told.
    for words in ("registered with the kubelet", "not allocated", "a command of the configuration failed"):
        assert all(words in log.getvalue() for log in logs), words
    assert all("reload failed: the file has mistakes" in log.getvalue() for log in logs)


# ── accounts ──


KUBECONFIG = f"""\
apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: k, cluster: {{server: "https://127.0.0.1:1"}}}}]
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
users: [{{name: u, user: {{token: {MARK}-token}}}}]
"""


def said_of(file: str) -> str:
    """What is told of an account, or of why there is none."""
    try:
        account = chosen_account(file, None)
    except ClusterError as error:
        return str(error)
    return f"{account.where} {account.namespace} {account.advice}"


@given(st.data())
def test_a_kubeconfig_that_cannot_be_used_is_not_repeated(data: st.DataObject) -> None:
    """With anything left out of it, or put into it."""
    begin = data.draw(st.integers(0, len(KUBECONFIG)))
    end = data.draw(st.integers(begin, min(len(KUBECONFIG), begin + 40)))
    text = KUBECONFIG[:begin] + data.draw(odd) + KUBECONFIG[end:]
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "kubeconfig")
        file.write_text(text)
        assert MARK not in said_of(str(file))


def test_a_token_and_the_environment_are_in_no_log_of_a_daemon_that_tells_the_cluster(
    short_dir: Path,
) -> None:
    place = SandboxDir(short_dir / "s")
    file = short_dir / "devplug.yaml"
    file.write_text("version: 1\nresources: [{name: example.com/a, discover: {static: {ids: [a]}}}]\n")
    with started("sandbox", "up", "--dir", place.folder) as up:
        said_until(up, "KUBECONFIG", on_error=False)
        (user,) = yaml.safe_load(place.kubeconfig.read_text())["users"]
        token = user["user"]["token"]
        wrong = short_dir / "wrong"
        wrong.write_text(place.kubeconfig.read_text().replace(token, f"{MARK}-token"))
        accounts = (place.kubeconfig, "registered"), (wrong, "cannot")
        for (kubeconfig, words), form in product(accounts, ("text", "json")):
            run = ("run", "-c", file, "--kubelet-root", place.node("worker-0").folder, "--kube-events")
            logs = ("--log-level", "debug", "--log-format", form)
            account = {"KUBECONFIG": str(kubeconfig), "NODE_NAME": "worker-0", "MY_PASSWORD": f"{MARK}-mine"}
            with started(*run, *logs, **account) as daemon:
                said = said_until(daemon, words)
            assert MARK not in said
            assert token not in said
