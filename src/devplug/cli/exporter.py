"""`devplug exporter`: the devices of a node, of all its plugins, as metrics for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from devplug.cli.machine import pod_resources_socket
from devplug.cli.options import kubelet_root, plugin_dir, plugin_folder
from devplug.cli.startup import do_without_openssl

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.web.addresses import Address

_EPILOG: Final = """\b
Examples:
  devplug exporter
  devplug exporter --listen :9411 --others-only     beside daemons that are scraped, too
  curl -s http://127.0.0.1:9411/metrics | grep devplug_device_held
"""


@click.command("exporter", epilog=_EPILOG)
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1:9411",
    show_default=True,
    help=(
        "Serve /metrics, /healthz and /readyz at this address: HOST:PORT, :PORT for all interfaces, or "
        "unix:PATH."
    ),
)
@click.option(
    "--others-only",
    is_flag=True,
    help="Leave out the resources of devplug daemons, which their own /metrics count already.",
)
@click.option(
    "--device-series-limit",
    metavar="COUNT",
    default=1000,
    show_default=True,
    type=click.IntRange(min=0),
    help="At most so many devices get series of their own, held and unhealthy ones first.",
)
@kubelet_root
@plugin_dir
@click.pass_context
def exporter_command(
    context: click.Context,
    *,
    listen: str,
    others_only: bool,
    device_series_limit: int,
    kubelet_root: str,
    plugin_dir: str | None,
) -> int:
    """Serve Prometheus metrics of all device plugins of this node.

    Asks the kubelet who holds what, and devplug's daemons for the rest; changes nothing. Runs until SIGTERM
    or Ctrl-C. Ready, by /readyz, while the kubelet answers.
    """
    do_without_openssl()
    return exporter(
        plugin_folder(context, kubelet_root, plugin_dir).absolute(),
        pod_resources_socket(kubelet_root),
        listen=listen,
        others_only=others_only,
        device_series_limit=device_series_limit,
    )


def exporter(
    plugin_dir: Path, pod_resources: Path, *, listen: str, others_only: bool, device_series_limit: int
) -> int:
    """Serve a node's metrics until SIGTERM or SIGINT; return the exit code. Both paths are absolute."""
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
        asyncio.run(
            _export(
                plugin_dir,
                pod_resources,
                address,
                others_only=others_only,
                device_series_limit=device_series_limit,
            )
        )
    except ListenError as error:
        click.echo(f"devplug: {error}", err=True)
        return BAD_INPUT
    return OK


async def _export(
    plugin_dir: Path, pod_resources: Path, listen: Address, *, others_only: bool, device_series_limit: int
) -> None:
    import logging
    import platform

    from devplug.linux.signals import stop_signals
    from devplug.monitor.exporter import exporting

    async with (
        stop_signals() as stopped,
        exporting(
            plugin_dir,
            pod_resources,
            listen=listen,
            node_name=platform.node(),
            device_series_limit=device_series_limit,
            others_only=others_only,
        ) as address,
    ):
        logging.getLogger(__name__).info("serving metrics", extra={"address": str(address)})
        await stopped.wait()
