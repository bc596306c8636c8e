"""The arguments of `devplug sandbox ...`. What the commands do is elsewhere, imported when they run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from devplug.cli.options import Commands, color, output_option, place_of, sandbox_dir
from devplug.errors import quoted

if TYPE_CHECKING:
    from pathlib import Path

_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_STRATEGIES = {
    "least-allocated": "LeastAllocated",
    "most-allocated": "MostAllocated",
    "requested-to-capacity-ratio": "RequestedToCapacityRatio",
}
_EPILOG = """\b
Examples:
  devplug sandbox up
  devplug sandbox run -- ./my-plugin --dir {dir}
  devplug sandbox describe
"""
_EPILOG_UP = """\b
Examples:
  devplug sandbox up
  devplug sandbox up --nodes 2 --numa 2 --policy single-numa-node --detach
  devplug sandbox up --image my-plugin='./my-plugin --dir {dir}' -- make end-to-end-test
"""
_EPILOG_RUN = """\b
Examples:
  devplug sandbox run -- ./my-plugin --dir {dir}
  devplug sandbox run --node worker-1 -- devplug run -c devplug.yaml
  devplug sandbox run --service-account lab/my-driver -- ./my-driver --kubelet-root {dir}/..
"""
_EPILOG_RESTART = """\b
Examples:
  devplug sandbox restart-kubelet
  devplug sandbox restart-kubelet worker-1
"""
_EPILOG_DISCONNECT = """\b
Examples:
  devplug sandbox disconnect
  devplug sandbox restart-kubelet
  devplug sandbox reconnect
"""
_EPILOG_REBOOT = """\b
Example:
  devplug sandbox reboot worker-0
"""
_EPILOG_PLUG = """\b
Examples:
  devplug sandbox plug tty0 tty1
  devplug sandbox run -- sh -c 'ls {dev}'
"""
_EPILOG_UNPLUG = """\b
Examples:
  devplug sandbox unplug           lists what is plugged in
  devplug sandbox unplug tty0
"""
_EPILOG_DESCRIBE = """\b
Examples:
  devplug sandbox describe
  devplug sandbox describe worker-0 -o json | jq '.nodes[0].resources'
"""
_EPILOG_END = """\b
Examples:
  devplug sandbox end my-job-x2x8z
  devplug sandbox end my-pod -n lab -c main --exit-code 1
"""
_EPILOG_KUBECONFIG = """\b
Example:
  export KUBECONFIG=$(devplug sandbox kubeconfig)
"""
_EPILOG_DOWN = """\b
Example:
  devplug sandbox down
"""
_command = click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")


@click.group("sandbox", cls=Commands, epilog=_EPILOG)
def sandbox() -> None:
    """Run a small Kubernetes for devices, in one process.

    It needs no root and has no containers; kubectl works with it.
    """


@sandbox.command("up", epilog=_EPILOG_UP)
@_command
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 100), help="How many nodes.")
@click.option(
    "--numa", default=1, show_default=True, type=click.IntRange(1, 8), help="NUMA nodes of each node."
)
@click.option(
    "--policy",
    default="none",
    show_default=True,
    type=click.Choice(_POLICIES),
    help="The kubelet's topology manager policy.",
)
@click.option(
    "--scope",
    default="container",
    show_default=True,
    type=click.Choice(["container", "pod"]),
    help="Whether that policy aligns each container or the whole pod.",
)
@sandbox_dir
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port of the API server on 127.0.0.1. Default: a free one.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Start this local command for containers of this image. Repeatable; {dir} works in COMMAND.",
)
@click.option(
    "--state",
    metavar="FILE",
    help="Keep all objects in this file; without it they are gone when the sandbox ends.",
)
@click.option(
    "--scoring",
    default="least-allocated",
    show_default=True,
    type=click.Choice(list(_STRATEGIES)),
    help="Which node the scheduler prefers.",
)
@click.option(
    "--like-real-timing",
    is_flag=True,
    help=(
        "Update the status of nodes every 10 s only, as real kubelets do; until then a restarted kubelet "
        "has 0 of each resource."
    ),
)
@click.option(
    "--rbac",
    is_flag=True,
    help=(
        "Let service accounts and nodes do only what roles allow them. Without it everybody may do "
        "everything."
    ),
)
@click.option("--tls-cert", metavar="FILE", help="Serve the API with TLS and this certificate, in PEM.")
@click.option("--tls-key", metavar="FILE", help="The private key of that certificate.")
@click.option(
    "--detach",
    is_flag=True,
    allow_from_autoenv=False,
    help="Return when the sandbox is up; it runs on in the background.",
)
def _up(
    command: tuple[str, ...],
    *,
    nodes: int,
    numa: int,
    policy: str,
    scope: str,
    folder: str | None,
    port: int,
    images: tuple[str, ...],
    state: str | None,
    scoring: str,
    like_real_timing: bool,
    rbac: bool,
    tls_cert: str | None,
    tls_key: str | None,
    detach: bool,
) -> int:
    """Start a sandbox, and print how kubectl reaches it. Ctrl-C ends it.

    With a COMMAND, a plugin or a test, the sandbox ends when it does, with its exit code; KUBECONFIG is set
    for it. In it, {dir} becomes the plugin folder of the first node, {dev} the folder of devices that `plug`
    fills and {node} the node's name.
    """
    from pathlib import Path

    from devplug.cli.sandbox import start
    from devplug.kubelet.topology import Policy, Scope, TopologySettings
    from devplug.sandbox.scheduler import ScoringSettings, Strategy
    from devplug.sandbox.settings import SandboxSettings

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key need each other; give both")
    settings = SandboxSettings(
        folder=place_of(folder).folder,
        nodes=nodes,
        numa_nodes=numa,
        topology=TopologySettings(policy=Policy(policy), scope=Scope(scope)),
        scoring=ScoringSettings(strategy=Strategy(_STRATEGIES[scoring])),
        like_real_timing=like_real_timing,
        port=port,
        rbac=rbac,
        images=_commands_of(images),
        state=Path(state).absolute() if state else None,
        certificate=_readable(tls_cert),
        key=_readable(tls_key),
    )
    if not detach:
        return start.up(settings, command)
    given = [
        *("--nodes", nodes, "--numa", numa, "--policy", policy, "--scope", scope, "--port", port),
        *(word for image in images for word in ("--image", image)),
        *(("--state", settings.state) if settings.state else ()),
        *(("--like-real-timing",) if like_real_timing else ()),
        *(("--rbac",) if rbac else ()),
        *(("--tls-cert", settings.certificate, "--tls-key", settings.key) if settings.key else ()),
        *("--dir", settings.folder, "--scoring", scoring, "--", *command),
    ]
    ends_with = "the end of the command" if command else "devplug sandbox down"
    return start.up_detached(settings, [str(word) for word in given], ends_with=ends_with)


@sandbox.command("run", epilog=_EPILOG_RUN)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...", required=True)
@click.option("--node", metavar="NAME", help="On this node. Default: the first.")
@click.option(
    "--service-account",
    "account",
    metavar="[NAMESPACE/]NAME",
    help="With the kubeconfig of this service account on that node. Default: the administrator's.",
)
@sandbox_dir
def _run(command: tuple[str, ...], *, node: str | None, account: str | None, folder: str | None) -> int:
    """Start a plugin in the sandbox, on this terminal. If no sandbox is up, one lives as long as the plugin.

    In COMMAND, {dir} becomes the plugin folder, {dev} the folder of devices that `plug` fills and {node} the
    node's name. A plugin whose command does not name the folder finds ours at the kubelet's own path, in a
    mount namespace of its own; that needs root. It ends with the sandbox; the exit code is COMMAND's.
    """
    from devplug.cli.sandbox import start

    return start.run(place_of(folder), node, command, account)


def _commands_of(images: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found = {}
    for image in images:
        name, equals, written = image.partition("=")
        try:
            words = tuple(shlex.split(written))
        except ValueError as error:
            raise click.UsageError(f"--image {image}: {error}") from error
        if not name or not equals or not words:
            wanted = "NAME=COMMAND, as in my-plugin='./my-plugin --dir {dir}'"
            raise click.UsageError(f"--image takes {wanted}, not {quoted(image)}")
        found[name] = words
    return found


def _readable(file: str | None) -> Path | None:
    from pathlib import Path

    if file is None:
        return None
    try:
        Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error
    return Path(file).absolute()


# ── commands on a sandbox that is up ──────────────────────────────────────────────────────────────


@sandbox.command("restart-kubelet", epilog=_EPILOG_RESTART)
@click.argument("node", required=False)
@sandbox_dir
def _restart_kubelet(node: str | None, folder: str | None) -> int:
    """Restart the kubelet of NODE, or of all nodes. Plugins must register again, containers run on."""
    from devplug.cli.sandbox import operations

    return operations.on_nodes(place_of(folder), node, "restart-kubelet", "the kubelet has restarted")


@sandbox.command("disconnect", epilog=_EPILOG_DISCONNECT)
@click.argument("node", required=False)
@sandbox_dir
def _disconnect(node: str | None, folder: str | None) -> int:
    """Take the API server away from NODE, or from all nodes. Containers run on, and kubectl works.

    A kubelet that restarts meanwhile knows static pods only, those of the folder DIR/nodes/NODE/manifests.
    """
    from devplug.cli.sandbox import operations

    return operations.on_nodes(place_of(folder), node, "disconnect", "the API server is away")


@sandbox.command("reconnect", epilog=_EPILOG_DISCONNECT)
@click.argument("node", required=False)
@sandbox_dir
def _reconnect(node: str | None, folder: str | None) -> int:
    """Bring the API server back to NODE, or to all nodes. It ends what `disconnect` began."""
    from devplug.cli.sandbox import operations

    return operations.on_nodes(place_of(folder), node, "reconnect", "the API server is back")


@sandbox.command("reboot", epilog=_EPILOG_REBOOT)
@click.argument("node", required=False)
@sandbox_dir
def _reboot(node: str | None, folder: str | None) -> int:
    """Reboot NODE, or all nodes. All containers end, and their pods are admitted anew."""
    from devplug.cli.sandbox import operations

    return operations.on_nodes(place_of(folder), node, "reboot", "rebooted")


@sandbox.command("plug", epilog=_EPILOG_PLUG)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@sandbox_dir
def _plug(names: tuple[str, ...], folder: str | None) -> int:
    """Plug devices in. They are files in the sandbox's folder of devices, which any user may make.

    A configuration finds them by `path: DIR/dev/*`, a plugin's command by {dev}.
    """
    from devplug.cli.sandbox import operations

    return operations.plug(place_of(folder), names)


@sandbox.command("unplug", epilog=_EPILOG_UNPLUG)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@sandbox_dir
def _unplug(names: tuple[str, ...], folder: str | None) -> int:
    """Pull devices out, or list them. They are what `plug` has plugged in; without NAME, they are listed."""
    from devplug.cli.sandbox import operations

    return operations.unplug(place_of(folder), names)


@sandbox.command("describe", epilog=_EPILOG_DESCRIBE)
@click.argument("node", required=False)
@sandbox_dir
@output_option("Tables for people, or a form for programs.", "table", "json", "yaml")
@color
def _describe(node: str | None, *, folder: str | None, output: str, color: str) -> int:
    """Show devices, claims and who holds them. Also what containers would get, on NODE or on all nodes."""
    from devplug.cli.sandbox.operations import describe

    return describe(place_of(folder), node, output=output, color=color)


@sandbox.command("end", epilog=_EPILOG_END)
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True, help="The pod's namespace.")
@click.option("-c", "--container", help="Only this container of it.")
@click.option(
    "--exit-code",
    default=0,
    show_default=True,
    type=click.IntRange(0, 255),
    help="The exit code of its programs; 0 is success.",
)
@sandbox_dir
def _end(pod: str, *, namespace: str, container: str | None, exit_code: int, folder: str | None) -> int:
    """End the containers of POD. It is as if their programs had ended; they restart if the pod says so."""
    from devplug.cli.sandbox import operations

    return operations.end(place_of(folder), namespace, pod, container, exit_code)


@sandbox.command("kubeconfig", epilog=_EPILOG_KUBECONFIG)
@sandbox_dir
def _kubeconfig(folder: str | None) -> int:
    """Print the path of the kubeconfig. It is there while the sandbox is up."""
    from devplug.cli.sandbox import operations

    return operations.kubeconfig(place_of(folder))


@sandbox.command("down", epilog=_EPILOG_DOWN)
@sandbox_dir
def _down(folder: str | None) -> int:
    """End the sandbox, and wait until it has."""
    from devplug.cli.sandbox import operations

    return operations.down(place_of(folder))
