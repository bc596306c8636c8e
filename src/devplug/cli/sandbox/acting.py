"""The arguments of commands that act upon a sandbox that is up. What they do is elsewhere."""

from __future__ import annotations

import click

from devplug.cli.options import color, place_of, sandbox_dir
from devplug.cli.sandbox.starting import sandbox

__all__ = ["advertise", "sandbox"]

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
  devplug sandbox describe worker-0 -o json | jq '.nodes[0].devices'
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
_EPILOG_ADVERTISE = """\b
Examples:
  devplug advertise worker-0 example.com/license=2
  devplug advertise worker-0 --remove example.com/license
  devplug advertise worker-0 example.com/license=2 --context my-cluster --dry-run
  devplug advertise worker-0 --remove DevicesReady --context my-cluster
"""


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
@click.option(
    "-o",
    "--output",
    envvar="DEVPLUG_OUTPUT",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Tables for people, or the facts for programs.",
)
@color
def _describe(node: str | None, *, folder: str | None, output: str, color: str) -> int:
    """Show devices and who holds them. Also what each container would get, on NODE or on all nodes."""
    from devplug.cli.sandbox.describing import describe

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
    help="How its programs end: 0 is success.",
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


@click.command("advertise", epilog=_EPILOG_ADVERTISE)
@click.argument("node")
@click.argument("counts", nargs=-1, metavar="vendor.com/kind=N...")
@click.option(
    "--remove",
    multiple=True,
    metavar="NAME",
    help="A resource to advertise no more, or DevicesReady: the condition that a daemon with --kube-events "
    "leaves on its node. Repeatable.",
)
@click.option("--kubeconfig", metavar="FILE", help="The cluster's, not the sandbox. Default: $KUBECONFIG.")
@click.option("--context", metavar="NAME", help="This context of the kubeconfig.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option(
    "--force", is_flag=True, help="Change also what a device plugin serves, until the kubelet counts again."
)
@sandbox_dir
def advertise(
    node: str,
    counts: tuple[str, ...],
    *,
    remove: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
    force: bool,
    folder: str | None,
) -> int:
    """Set what NODE counts, without a plugin. They may be licences, seats, anything that is counted.

    In the sandbox if one is up, else in the cluster of the kubeconfig (needs devplug[k8s]). Pods get nothing
    in their containers; they are only counted.
    """
    from devplug.cli.advertise import advertise

    return advertise(
        place_of(folder),
        node,
        counts,
        remove,
        kubeconfig=kubeconfig,
        context=context,
        dry_run=dry_run,
        force=force,
    )
