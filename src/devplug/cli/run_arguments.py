"""The arguments of `devplug run`. What they start is in `run`, which `--help` does not load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from devplug.cli.options import (
    kubelet_root,
    plugin_dir,
    plugin_folder,
    pod_resources_socket,
)
from devplug.cli.startup import do_without_openssl, uncollected
from devplug.logs import FORMS, LEVELS

if TYPE_CHECKING:
    from devplug.logs import Form

__all__ = ["run_command"]

_EPILOG: Final = """\b
Examples:
  devplug run -c /etc/devplug/config.yaml
  devplug run -c devplug.yaml --listen 127.0.0.1:9410 --log-format json
"""


@click.command("run", epilog=_EPILOG)
@click.option(
    "-c",
    "--config",
    metavar="FILE",
    envvar="DEVPLUG_CONFIG",
    help="The file that says which devices to serve. Default: /etc/devplug/config.yaml.",
)
@kubelet_root
@plugin_dir
@click.option(
    "--listen",
    metavar="ADDRESS",
    envvar="DEVPLUG_LISTEN",
    help="Serve /healthz, /readyz and /metrics at this address: 127.0.0.1:9410, :9410 or unix:PATH. "
    "Default: only at the status socket, which devplug status reads.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default="text",
    show_default=True,
    envvar="DEVPLUG_LOG_FORMAT",
    help="Lines for people, or one JSON object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(list(LEVELS)),
    default="info",
    show_default=True,
    envvar="DEVPLUG_LOG_LEVEL",
    help="Leave out lines below this level; audit lines stay.",
)
@click.option(
    "--kube-events",
    is_flag=True,
    envvar="DEVPLUG_KUBE_EVENTS",
    help="Write Events and the condition DevicesReady of this Node to the cluster. Needs devplug[k8s] and "
    "rights; devplug manifests --kube-events grants them.",
)
@click.pass_context
def run_command(
    context: click.Context,
    config: str | None,
    kubelet_root: str,
    plugin_dir: str | None,
    listen: str | None,
    *,
    log_format: Form,
    log_level: str,
    kube_events: bool,
) -> int:
    """Serve the devices that a YAML file names, until SIGTERM or Ctrl-C."""
    from devplug.k8s.account import may_have_account

    # Where the labels of this Node may be asked for, now or after an edit, the API server speaks TLS.
    if not may_have_account():
        do_without_openssl()
    with uncollected():
        from devplug.cli.run import run

    return run(
        config,
        plugin_folder(context, kubelet_root, plugin_dir),
        pod_resources_socket(kubelet_root),
        listen=listen,
        log_level=log_level,
        log_format=log_format,
        kube_events=kube_events,
    )
