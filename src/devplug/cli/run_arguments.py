"""The command `devplug run` of click. What it starts is in `run`, which `--help` does not load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from devplug.cli.machine import pod_resources_socket
from devplug.cli.options import plugin_folder, settings_of
from devplug.cli.run_options import RUN_OPTIONS, RunOptions
from devplug.cli.startup import start_daemon

if TYPE_CHECKING:
    from devplug.logs import Form

_EPILOG: Final = """\b
Examples:
  devplug run -c /etc/devplug/config.yaml
  devplug run -c devplug.yaml --listen 127.0.0.1:9410 --log-format json
"""


def run_options_of(context: click.Context) -> RunOptions:
    """Return what was asked for, as click has read it."""
    values = context.params
    return RunOptions(
        config=values["config"],
        plugin_dir=plugin_folder(context, values["kubelet_root"], values["plugin_dir"]),
        pod_resources=pod_resources_socket(values["kubelet_root"]),
        cdi_dir=Path(values["cdi_dir"]),
        listen=values["listen"],
        log_format=cast("Form", values["log_format"]),
        log_level=values["log_level"],
        kube_events=values["kube_events"],
    )


@click.command(
    "run", params=[click.Option(one.names, **settings_of(one)) for one in RUN_OPTIONS], epilog=_EPILOG
)
@click.pass_context
def run_command(context: click.Context, /, **_: object) -> int:
    """Serve the devices of a configuration. Runs until SIGTERM or Ctrl-C."""
    return start_daemon(run_options_of(context))
