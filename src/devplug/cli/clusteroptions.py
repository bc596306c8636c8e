"""Which cluster is meant: the options that say so, and what they mean together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from devplug.apiserver.access import Account

__all__ = ["account_of", "context_option", "kubeconfig_option", "namespace_option"]

kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(readable=False),
    allow_from_autoenv=False,
    help="How to reach the cluster. Default: $KUBECONFIG, else ~/.kube/config, else the pod's account.",
)
context_option = click.option(
    "--context", metavar="NAME", allow_from_autoenv=False, help="A context of the kubeconfig."
)
namespace_option = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    allow_from_autoenv=False,
    help="The namespace. Default: the context's.",
)


def account_of(
    kubeconfig: str | None, context: str | None, *, folder: str | None = None, knows_sandboxes: bool = False
) -> Account:
    """Return the account that is meant; raises `ClusterError`.

    A sandbox is meant where its folder is named, or where it is up and nothing names a cluster.
    """
    from devplug.apiserver.access import KUBECONFIG_VARIABLE, chosen_account

    besides = ""
    if kubeconfig is None and context is None and knows_sandboxes:
        from devplug.cli.options import place_of

        place = place_of(folder)
        is_up = place.running() is not None
        if folder is not None and not is_up:
            raise click.UsageError(f"no sandbox is up in {place.folder}; start one: devplug sandbox up")
        if is_up and (folder is not None or not os.environ.get(KUBECONFIG_VARIABLE)):
            kubeconfig = str(place.kubeconfig)
        elif not is_up:
            besides = "; no sandbox is up either"
    return chosen_account(kubeconfig, context, besides=besides)
