"""The tutorial's plugin finds cards, sees them come and go, and knows how they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.testing import SyncKubelet
from examples.fpga_tutorial import Fpga
from tests.examples.beds import command, nodes

NAME = "example.com/fpga"


class BriskFpga(Fpga):
    monitor_seconds = 0.05


def says(tmp_path: Path, card: str, state: str) -> None:
    """Let a card's manager say something."""
    folder = tmp_path / "states" / card
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "fresh"
    fresh.write_text(f"{state}\n")
    fresh.replace(folder / "state")


@pytest.fixture
def cards(tmp_path: Path) -> list[str]:
    """Two working cards; the arguments of the plugin that finds them."""
    for card in ("fpga0", "fpga1"):
        says(tmp_path, card, "operating")
    return [str(nodes(tmp_path / "dev", "fpga0", "fpga1")), str(tmp_path / "states")]


def health(kubelet: SyncKubelet) -> dict[str, str]:
    return {device.id: device.health for device in kubelet.devices(NAME)}


def test_a_pod_gets_the_nodes_of_its_cards_and_their_names(
    kubelet: SyncKubelet, cards: list[str], tmp_path: Path
) -> None:
    kubelet.start(Fpga(*cards))
    container = kubelet.admit({NAME: 2}).container
    assert sorted(container.envs["FPGA_DEVICE"].split(",")) == ["fpga-0", "fpga-1"]
    assert sorted(node.host_path for node in container.device_nodes) == [
        str(tmp_path / "dev/fpga0"),
        str(tmp_path / "dev/fpga1"),
    ]


def test_a_card_that_fails_is_not_given_out_and_its_repair_is_seen(
    kubelet: SyncKubelet, cards: list[str], tmp_path: Path
) -> None:
    kubelet.start(BriskFpga(*cards))
    says(tmp_path, "fpga0", "write error")
    kubelet.wait(lambda: health(kubelet) == {"fpga-0": UNHEALTHY, "fpga-1": HEALTHY})
    assert kubelet.admit({NAME: 1}).container.device_ids == ("fpga-1",)
    says(tmp_path, "fpga0", "operating")
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 2)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("operating", ""),
        ("write init error", "its manager says 'write init error'"),
        ("power off", "its manager says 'power off'"),
    ],
)
def test_a_state_is_judged(cards: list[str], tmp_path: Path, state: str, reason: str) -> None:
    says(tmp_path, "fpga0", state)
    judged = Fpga(*cards).health("fpga0")
    assert (judged.state.value, judged.reason) == ("unhealthy" if reason else "healthy", reason)


@pytest.mark.parametrize("card", ["fpga0", "fpga7"])
def test_a_card_that_is_being_programmed_or_tells_nothing_stays_what_it_was(
    cards: list[str], tmp_path: Path, card: str
) -> None:
    says(tmp_path, "fpga0", "write init")
    assert Fpga(*cards).health(card).state.value == "unknown"


def test_the_program_sees_cards_that_are_plugged_and_unplugged(
    kubelet: SyncKubelet, cards: list[str], tmp_path: Path
) -> None:
    program = kubelet.run(command("fpga_tutorial.py", *cards))
    assert kubelet.allocatable == {NAME: 2}
    nodes(tmp_path / "dev", "fpga2")
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 3)
    pod = kubelet.admit({NAME: 1})
    (held,) = pod.container.device_ids
    (tmp_path / "dev" / held.replace("-", "")).unlink()
    kubelet.wait(lambda: health(kubelet)[held] == UNHEALTHY)
    assert program.stop() == 0


def test_the_program_serves_no_cards_where_there_are_none(kubelet: SyncKubelet, tmp_path: Path) -> None:
    kubelet.run(command("fpga_tutorial.py", tmp_path / "nowhere", tmp_path))
    assert kubelet.capacity == {NAME: 0}
