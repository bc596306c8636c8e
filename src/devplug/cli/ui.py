"""`devplug ui`: the web page of this node, or of a sandbox, until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from devplug.cli.options import kubelet_root, plugin_dir, sandbox_folder, sandbox_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.cli.status.nodes import NodeFolders
    from devplug.web.addresses import Address

_EPILOG: Final = """\b
Examples:
  devplug ui
  devplug ui --dir /tmp/sandbox
  devplug ui --listen 127.0.0.1:0                        any free port
  ssh -L 8420:127.0.0.1:8420 node sudo devplug ui        a node's page on your own machine
"""


@click.command("ui", epilog=_EPILOG)
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1:8420",
    show_default=True,
    help="The address of the page: HOST:PORT, :PORT for all interfaces, or unix:PATH.",
)
@kubelet_root
@plugin_dir
@sandbox_folder
@sandbox_nodes
@click.pass_context
def ui_command(
    context: click.Context,
    *,
    listen: str,
    kubelet_root: str,
    plugin_dir: str | None,
    folder: str | None,
    names: tuple[str, ...],
) -> int:
    """Show a node's devices live, on a web page.

    The page only shows; nothing can be changed over it. It has no password, and is for this machine alone
    unless --listen says otherwise. Runs until Ctrl-C.
    """
    from devplug.cli.status.nodes import chosen_folders

    nodes, _ = chosen_folders(context, kubelet_root, plugin_dir, folder, names)
    return ui(nodes, listen=listen)


def ui(nodes: Sequence[NodeFolders], *, listen: str) -> int:
    """Serve the page of these nodes until SIGTERM or SIGINT; return the exit code."""
    import asyncio

    from devplug.cli.exits import BAD_INPUT, OK
    from devplug.logs import show_logs
    from devplug.web.addresses import parse_address
    from devplug.web.messages import ListenError

    try:
        address = parse_address(listen)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}") from error
    show_logs()
    try:
        asyncio.run(_serve(nodes, address))
    except ListenError as error:
        click.echo(f"devplug: {error}", err=True)
        return BAD_INPUT
    return OK


async def _serve(nodes: Sequence[NodeFolders], address: Address) -> None:
    import asyncio

    from devplug.linux.signals import stop_signals
    from devplug.monitor.collector import Collector
    from devplug.monitor.page.server import Follower, Pages
    from devplug.web.server import serving

    follower = Follower([Collector(one.plugin_dir, one.pod_resources, node_name=one.name) for one in nodes])
    async with (
        stop_signals() as stopped,
        serving(address, Pages(follower).answer, name="ui") as actual,
        asyncio.TaskGroup() as group,
    ):
        following = group.create_task(follower.run())
        _print_address(actual, [one.name for one in nodes])
        await stopped.wait()
        following.cancel()


def _print_address(address: Address, names: Sequence[str]) -> None:
    from devplug.web.addresses import TcpAddress

    place = str(address)
    if isinstance(address, TcpAddress):
        is_any = address.host in {"", "0.0.0.0", "::"}  # noqa: S104 -- it is what was asked
        place = f"http://{f'localhost:{address.port}' if is_any else address}/"
    click.echo(f"{place} shows {', '.join(names)}; Ctrl-C ends it")
    if isinstance(address, TcpAddress) and not address.is_loopback:
        click.echo(
            "devplug: whoever reaches this port sees the names of pods and devices, without a password and "
            "without encryption; for this machine alone: --listen 127.0.0.1:8420",
            err=True,
        )
