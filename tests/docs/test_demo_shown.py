"""The demo in README.md is what was recorded, and its three commands end in a DaemonSet that serves."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import blocks_of
from tests.docs.picture import PICTURE, README, SHOWN, drawn, recording, told
from tests.sandbox.kubectl.consoles import sandbox_player


def test_the_text_of_the_demo_is_the_recorded_one() -> None:
    shown = SHOWN.search(README.read_text())
    assert shown
    assert shown[2] == told(recording()), "run: python -m tests.docs.picture"


def test_the_picture_of_the_demo_is_the_recorded_one() -> None:
    assert PICTURE.read_text() == drawn(recording()), "run: python -m tests.docs.picture"


def test_the_picture_says_in_words_what_it_shows() -> None:
    (alternative,) = re.findall(r"!\[(.*?)\]\(docs/images/demo\.svg\)", README.read_text())
    assert len(alternative) > 80


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.read_text().splitlines()) <= 175


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (1.27 or newer, from dl.k8s.io)")
def test_three_commands_lead_to_a_daemonset_that_serves(tmp_path: Path) -> None:
    (block,) = (one for one in blocks_of(README) if one.words == "three")
    commands = block.text.replace("$ ", "").splitlines()
    assert len(commands) == 3
    with sandbox_player(tmp_path) as player:
        # What the image would run; the sandbox mounts no ConfigMaps.
        image = f"devplug=devplug run -c {tmp_path}/devplug.yaml"
        player.shell(f"devplug sandbox up --detach --image '{image}'")
        player.shell("export KUBECONFIG=$DEVPLUG_SANDBOX_DIR/kubeconfig")
        said = [player.shell(command) for command in commands]
        assert "daemonset.apps/devplug created" in said[-1]
        player.shell("kubectl -n devplug rollout status daemonset/devplug --timeout=30s")
        served = re.findall(r"name: (\S+/\S+)", (tmp_path / "devplug.yaml").read_text())
        node = json.loads(player.shell("kubectl get node worker-0 -o json"))
        assert {name.strip('"') for name in served} <= node["status"]["capacity"].keys(), said
