"""The arguments of `devplug verify`. What they start is in `verify`, which `--help` does not load."""

from __future__ import annotations

from typing import Final

import click

from devplug.cli.options import color as color_option
from devplug.cli.options import output_option

_EPILOG: Final = """\b
Examples:
  devplug verify -- ./my-plugin --dir {dir}
  devplug verify --quick -o junit -- python -m my_plugin > report.xml
  sudo devplug verify -- ./plugin-with-the-folder-compiled-in
  devplug verify --unplug 'rm {work}/dev0' --replug 'touch {work}/dev0' -- ./my-plugin {dir} {work}
  devplug verify --attach /var/lib/kubelet/device-plugins/my.sock
  devplug verify --dra -- ./my-driver --plugins-dir {root}/plugins --cdi-dir {cdi}
  devplug verify --explain STR07
"""


@click.command("verify", epilog=_EPILOG)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--dra", is_flag=True, help="Judge a DRA driver, by the checks of drivers.")
@click.option("--quick", is_flag=True, help="Only checks that take less than ten seconds in all.")
@click.option(
    "--only", multiple=True, metavar="CHECK", help="Only this check, group or glob (RES*). Repeatable."
)
@click.option("--skip", multiple=True, metavar="CHECK", help="Not this check, group or glob. Repeatable.")
@click.option("--list", "is_list", is_flag=True, help="Show the checks; starts nothing.")
@click.option("--explain", metavar="CHECK", help="Say what a check is about, and where its rule comes from.")
@click.option(
    "--attach",
    metavar="SOCKET",
    type=click.Path(readable=False),
    help="Judge the plugin that serves this socket, by harmless checks only.",
)
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set this for the plugin. Repeatable. {dir} works in VALUE, and DEVPLUG_PLUGIN_DIR always has it.",
)
@click.option(
    "--resource", "resource_name", metavar="NAME", help="Judge this resource of a plugin that serves several."
)
@click.option("--unplug", default="", metavar="COMMAND", help="A command that takes a device away.")
@click.option("--replug", default="", metavar="COMMAND", help="A command that brings it back.")
@click.option(
    "--cdi-dir",
    "cdi_dirs",
    multiple=True,
    metavar="DIR",
    default=["/etc/cdi", "/var/run/cdi"],
    show_default=True,
    help="Where the runtime looks for CDI files. Repeatable; {work} works in it.",
)
@click.option(
    "--jobs",
    default=6,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many copies of the plugin may run at a time; 1 if a second copy would disturb it.",
)
@output_option("For people, programs, CI systems or test harnesses.", "table", "json", "junit", "tap")
@color_option
def verify_command(
    command: tuple[str, ...],
    *,
    dra: bool,
    quick: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    is_list: bool,
    explain: str | None,
    attach: str | None,
    environment: tuple[str, ...],
    resource_name: str | None,
    unplug: str,
    replug: str,
    cdi_dirs: tuple[str, ...],
    jobs: int,
    output: str,
    color: str,
) -> int:
    """Judge a device plugin or DRA driver, in any language.

    COMMAND starts the plugin. devplug's kubelet emulator stands in for the kubelet, and numbered checks judge
    the answers.

    In COMMAND, {dir} becomes the plugin folder and {work} a private one. A plugin whose command does not name
    the folder finds ours at the kubelet's own path, in a mount namespace of its own; that needs root. Exit
    code 0: it passed, maybe with notes; 1: it failed; 2: it could not be judged.

    With --dra COMMAND starts a DRA driver on a node with an API server: {root} becomes the kubelet's folder,
    {cdi} that of CDI files, {kubeconfig}, {node} and {pod} what it needs for the API; the variables
    KUBELET_ROOT, CDI_ROOT, KUBECONFIG, NODE_NAME and POD_UID have them, too; a
    plugin of devplug's SDK finds them by itself.
    """
    from pathlib import Path

    from devplug.cli import verify

    if explain is not None:
        return verify.explain(explain)
    if dra and (attach is not None or resource_name):
        raise click.UsageError("--dra takes a COMMAND after --, and no --attach or --resource")
    checks = verify.selected(only=only, skip=skip, quick=quick, attached=attach is not None, dra=dra)
    if is_list:
        return verify.list_checks(checks, color)
    if bool(command) == (attach is not None):
        raise click.UsageError("name either a COMMAND after --, or a socket with --attach")
    if attach is not None and not Path(attach).is_socket():
        raise click.UsageError(
            f"{attach} is not a socket; a plugin has its socket in the folder of kubelet.sock"
        )
    if dra:
        subject = verify.driver_subject_of(command, environment=environment, unplug=unplug, replug=replug)
        return verify.verify_driver(subject, checks, quick=quick, jobs=jobs, output=output, color=color)
    return verify.verify(
        verify.subject_of(
            command,
            environment=environment,
            resource_name=resource_name,
            unplug=unplug,
            replug=replug,
            cdi_dirs=cdi_dirs,
        ),
        checks,
        quick=quick,
        jobs=jobs,
        attached=Path(attach) if attach is not None else None,
        output=output,
        color=color,
    )
