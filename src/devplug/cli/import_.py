"""`devplug import`: a peer's configuration as ours on standard output, and the problems on standard error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import FAILED, OK
from devplug.cli.options import output_option

if TYPE_CHECKING:
    from devplug.daemon.importers.peer_file import Peer
    from devplug.daemon.importers.translation import Translation
    from devplug.k8s.yaml import Value

STANDARD_INPUT: Final = "-"

_EPILOG: Final = """\b
Examples:
  devplug import generic-device-plugin.yaml > devplug.yaml
  kubectl get daemonset -n kube-system generic-device-plugin -o yaml | devplug import -
  devplug import --from nvidia --key a100 configmap.yaml
"""


def import_file(
    file: str,
    *,
    peer: Peer | None = None,
    domain: str | None = None,
    key: str | None = None,
    output: str = "yaml",
) -> int:
    """Print what `file` is as a configuration of ours; return the exit code.

    Raises `ConfigError` if the file cannot be read, or is no configuration of a known peer.
    """
    import sys

    from devplug.daemon.config.document import SIZE_LIMIT_BYTES
    from devplug.daemon.config_file import read_config_file
    from devplug.daemon.importers.translation import translated

    if file == STANDARD_INPUT:
        name, source = "stdin", sys.stdin.buffer.read(SIZE_LIMIT_BYTES + 1)
    else:
        name, source = file, read_config_file(file)
    found = translated(source, name, peer=peer, domain=domain, key=key)
    if output == "json":
        click.echo(json.dumps(_facts(found), indent=2))
    else:
        click.echo(found.text, nl=False)
        _print_problems(found, name)
    return OK if found.is_whole else FAILED


def _print_problems(found: Translation, name: str) -> None:
    for remark in found.remarks:
        problem = remark.problem
        place = ":".join([name, *(str(number) for number in (problem.line, problem.column) if number)])
        click.echo(f"{place}: {remark.grade.value}: {problem}", err=True)
    if found.config is None:
        click.echo(f"{name}: no part of it could be translated", err=True)


def _facts(found: Translation) -> Value:
    return {
        "from": found.peer,
        "config": found.config,
        "problems": [
            {
                "grade": remark.grade.value,
                "line": remark.problem.line,
                "column": remark.problem.column,
                "path": remark.problem.path,
                "message": remark.problem.message,
            }
            for remark in found.remarks
        ],
    }


@click.command("import", epilog=_EPILOG)
@click.argument("file")
@click.option(
    "--from",
    "peer",
    type=click.Choice(["squat", "smarter", "nvidia"]),
    help="The device plugin that FILE configures. Default: recognised by its content.",
)
@click.option(
    "--domain",
    metavar="DOMAIN",
    help="The domain of squat's resources if FILE has none. Default: squat.ai, its own default.",
)
@click.option("--key", metavar="KEY", help="The key of the configuration, of several in a ConfigMap.")
@output_option(
    "A file for devplug run, or one JSON object with the configuration and the problems.", "yaml", "json"
)
def import_(file: str, peer: Peer | None, domain: str | None, key: str | None, output: str) -> int:
    """Translate the configuration of another device plugin.

    Knows squat's generic-device-plugin, smarter-device-manager and NVIDIA's device plugin.

    FILE is its configuration, a ConfigMap with that, or a DaemonSet with squat's --device flags; - is
    standard input. Standard error names what works differently or was left out, with its line.

    Exit code 0: all is translated; 1: something was left out, or pods must change; 2: FILE is unreadable.
    """
    return import_file(file, peer=peer, domain=domain, key=key, output=output)
