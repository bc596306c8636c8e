"""`devplug ui` as people start it: where the page is, what is said, and how it ends."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from devplug.testing.kubelet import SyncKubelet
from tests.cli.programs import devplug, ended, said_until, started
from tests.monitor.page.scene import FPGA, Scene, address_in, asked, page_of


def test_it_says_where_the_page_is_and_ctrl_c_ends_it_well(short_dir: Path) -> None:
    options = (
        "--listen",
        "127.0.0.1:0",
        "--plugin-dir",
        short_dir / "device-plugins",
        "--kubelet-root",
        short_dir,
    )
    with started("ui", *options, NODE_NAME="worker-0") as process:
        line = said_until(process, "shows worker-0; Ctrl-C ends it", on_error=False)
        with urlopen(address_in(line), timeout=30) as answer:
            assert "<title>worker-0 - devplug</title>" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert ended(process) == 0


def test_it_shows_a_node_that_has_no_plugin_yet_and_follows_when_one_comes(
    kubelet: SyncKubelet, short_dir: Path
) -> None:
    with page_of(kubelet) as url:
        with urlopen(f"{url}events", timeout=30) as events:
            scene = Scene(short_dir, kubelet)
            scene.start()
            for line in events:
                # The kubelet tells of the devices before the daemon has its status socket.
                if FPGA.encode() in line and b"fpga-3" in line and b"devplug.yaml" in line:
                    break
        (seen,) = asked(f"{url}state.json")["nodes"]
        assert seen["name"] == "worker-0"
        assert seen["processes"][0]["file"] == str(short_dir / "devplug.yaml")


def test_only_the_local_machine_reaches_it_unless_one_says_otherwise_and_is_warned(short_dir: Path) -> None:
    options = (
        "--listen",
        "0.0.0.0:0",
        "--plugin-dir",
        short_dir / "device-plugins",
        "--kubelet-root",
        short_dir,
    )
    with started("ui", *options) as process:
        line = said_until(process, "Ctrl-C", on_error=False)
        assert line.startswith("http://localhost:")
        assert "without a password" in said_until(process, "password")
        process.terminate()
        assert ended(process) == 0


def test_a_page_of_elsewhere_cannot_read_it_by_a_name_that_leads_here(short_dir: Path) -> None:
    options = (
        "--listen",
        "127.0.0.1:0",
        "--plugin-dir",
        short_dir / "device-plugins",
        "--kubelet-root",
        short_dir,
    )
    with started("ui", *options) as process:
        url = address_in(said_until(process, "Ctrl-C", on_error=False))
        with pytest.raises(HTTPError, match="421"):
            urlopen(Request(f"{url}state.json", headers={"Host": "evil.example"}), timeout=30)


def test_an_address_that_is_none_is_refused() -> None:
    ran = devplug("ui", "--listen", "everywhere")
    assert ran.returncode == 2
    assert "127.0.0.1:9410" in ran.stderr


def test_a_port_that_is_taken_is_said_to_be(short_dir: Path) -> None:
    options = ("--plugin-dir", short_dir / "device-plugins", "--kubelet-root", short_dir, "--listen")
    with started("ui", *options, "127.0.0.1:0") as process:
        url = address_in(said_until(process, "Ctrl-C", on_error=False))
        ran = devplug("ui", *options, url.removeprefix("http://").removesuffix("/"))
        assert ran.returncode == 2
        assert "another program listens there" in ran.stderr


def test_all_nodes_of_a_sandbox_are_on_one_page(short_dir: Path) -> None:
    place = short_dir / "s"
    with started("sandbox", "up", "--nodes", "2", "--dir", place) as up:
        said_until(up, "KUBECONFIG", on_error=False)
        with started("ui", "--listen", "127.0.0.1:0", "--dir", place) as process:
            line = said_until(process, "Ctrl-C", on_error=False)
            assert "shows worker-0, worker-1" in line
            with urlopen(f"{address_in(line)}events", timeout=30) as events:
                for text in events:
                    if b'"waiting":[]' in text:
                        break
            seen = asked(f"{address_in(line)}state.json")
            assert [one["name"] for one in seen["nodes"]] == ["worker-0", "worker-1"]
        up.terminate()
        assert ended(up) == 0
