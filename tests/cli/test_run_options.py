"""The options of `devplug run`: read without click where they are plain, and then as click reads them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.cli.commands import commands
from devplug.cli.run_arguments import run_command, run_options_of
from devplug.cli.run_options import RUN_OPTIONS, RunOptions, plain_options

VARIABLES = [option.variable for option in RUN_OPTIONS]
VALUES = st.sampled_from(
    ["", "a", "/x/y", "json", "text", "debug", "info", "1", "no", "-", "-x", "--listen", "a=b"]
)
NAMES = st.sampled_from([name for option in RUN_OPTIONS for name in option.names])
WORDS = st.one_of(
    st.tuples(NAMES, VALUES).map(list),
    st.tuples(NAMES, VALUES).map(lambda pair: ["=".join(pair)]),
    st.just(["--kube-events"]),
    st.sampled_from(["--help", "-h", "--log", "-cfile", "--", "more"]).map(lambda word: [word]),
)
ARGUMENTS = st.lists(WORDS, max_size=4).map(
    lambda lists: ["run", *(word for words in lists for word in words)]
)
ENVIRONMENTS = st.dictionaries(
    st.sampled_from([*VARIABLES, "DEVPLUG_RUN_LISTEN", "HOME"]), VALUES, max_size=3
)


def read_by_click(arguments: list[str], environment: dict[str, str]) -> RunOptions:
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        for name, text in environment.items():
            patch.setenv(name, text)
        above = commands.make_context("devplug", [*arguments])
        with above, run_command.make_context("run", arguments[1:], parent=above) as context:
            return run_options_of(context)


@given(ARGUMENTS, ENVIRONMENTS)
def test_what_is_read_without_click_is_what_click_reads(
    arguments: list[str], environment: dict[str, str]
) -> None:
    options = plain_options(arguments, environment)
    if options is not None:
        assert options == read_by_click(arguments, environment)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "-c", "f.yaml"],
        ["run", "--config=f.yaml", "--plugin-dir", "/p", "--listen", ":9410"],
        ["run", "--log-format", "json", "--log-level=debug", "--kube-events"],
    ],
)
def test_a_plain_start_needs_no_click(arguments: list[str]) -> None:
    assert plain_options(arguments, {"DEVPLUG_KUBELET_ROOT": "/k", "NODE_NAME": "n"}) is not None


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["validate", "f.yaml"], {}),
        ([], {}),
        (["run", "--help"], {}),
        (["run", "-cf.yaml"], {}),
        (["run", "--log-level", "loud"], {}),
        (["run", "-c"], {}),
        (["run", "-c", "a", "-c", "b"], {}),
        (["run"], {"DEVPLUG_KUBE_EVENTS": "yes"}),
        (["run"], {"DEVPLUG_LOG_FORMAT": "xml"}),
        (["run"], {"DEVPLUG_RUN_LISTEN": ":1"}),
        (["run"], {"_DEVPLUG_COMPLETE": "bash_complete"}),
    ],
)
def test_anything_else_is_left_to_click(arguments: list[str], environment: dict[str, str]) -> None:
    assert plain_options(arguments, environment) is None


def plugin_dir_of(arguments: list[str], environment: dict[str, str]) -> str:
    options = plain_options(["run", *arguments], environment)
    assert options is not None
    return str(options.plugin_dir)


def test_another_root_folder_of_a_kubelet_moves_no_device_plugins() -> None:
    """As of k0s: the plugin folder is compiled in (deviceplugin/v1beta1/constants.go)."""
    root = ["--kubelet-root", "/var/lib/k0s/kubelet"]
    assert plugin_dir_of(root, {}) == "/var/lib/kubelet/device-plugins"
    assert plugin_dir_of([], {"DEVPLUG_KUBELET_ROOT": root[1]}) == "/var/lib/kubelet/device-plugins"
    assert plugin_dir_of(root, {"DEVPLUG_PLUGIN_DIR": "/p"}) == "/p"
    assert plugin_dir_of([*root, "--plugin-dir", "/q"], {"DEVPLUG_PLUGIN_DIR": "/p"}) == "/q"
    options = plain_options(["run", *root], {})
    assert options is not None
    assert str(options.pod_resources) == "/var/lib/k0s/kubelet/pod-resources/kubelet.sock"


def test_a_kubelet_with_its_socket_in_its_own_folder_is_found_there(short_dir: Path) -> None:
    """As that of a sandbox."""
    (short_dir / "device-plugins").mkdir()
    (short_dir / "device-plugins" / "kubelet.sock").touch()
    assert plugin_dir_of(["--kubelet-root", str(short_dir)], {}) == f"{short_dir}/device-plugins"
    environment = {"DEVPLUG_PLUGIN_DIR": "/p"}
    assert plugin_dir_of(["--kubelet-root", str(short_dir)], environment) == f"{short_dir}/device-plugins"


def test_click_shows_each_option_of_the_table() -> None:
    shown = [param.opts for param in run_command.params if isinstance(param, click.Option)]
    assert shown == [[*option.names] for option in RUN_OPTIONS]
