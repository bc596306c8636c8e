"""What is printed once a sandbox is up: where it is, and what to do next."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from devplug.sandbox.place import PLACE_VARIABLE, default_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.sandbox.place import Place, Record

__all__ = ["exports", "greeting"]


def exports(place: Place, environment: Mapping[str, str]) -> list[str]:
    """Return what a shell has to be told so that kubectl and devplug find the sandbox."""
    told = [f"export KUBECONFIG={shlex.quote(str(place.kubeconfig))}"]
    usual = default_folder({**environment, PLACE_VARIABLE: ""}, os.geteuid())
    if place.folder != usual:
        told.append(f"export {PLACE_VARIABLE}={shlex.quote(str(place.folder))}")
    return told


def greeting(place: Place, record: Record, environment: Mapping[str, str], *, ends_with: str) -> str:
    """Return the text; `ends_with` is what ends the sandbox."""
    count = len(record.nodes)
    lines = [
        f"The sandbox is up, with {count} node{'' if count == 1 else 's'}; {ends_with} ends it.",
        f"kubeconfig: {place.kubeconfig}",
        "",
        *(f"  {line}" for line in exports(place, environment)),
        "",
        "Next:",
        "  kubectl get nodes",
        "  devplug sandbox run -- ./my-plugin --dir {dir}",
        "  devplug sandbox describe",
    ]
    return "\n".join(lines)
