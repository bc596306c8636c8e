"""What is printed once a sandbox is up: where it is, and what to do next."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING, Final

from devplug.sandbox.place import PLACE_VARIABLE, default_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.sandbox.place import Place, Record

__all__ = ["exports", "greeting"]

_KUBECTL: Final = "https://kubernetes.io/docs/tasks/tools/"


def exports(place: Place, environment: Mapping[str, str]) -> list[str]:
    """Return what a shell has to be told so that kubectl and devplug find the sandbox."""
    told = [f"export KUBECONFIG={shlex.quote(str(place.kubeconfig))}"]
    usual = default_folder({**environment, PLACE_VARIABLE: ""}, os.geteuid())
    if place.folder != usual:
        told.append(f"export {PLACE_VARIABLE}={shlex.quote(str(place.folder))}")
    return told


def greeting(
    place: Place,
    record: Record,
    environment: Mapping[str, str],
    *,
    ends_with: str,
    has_next: bool = True,
) -> str:
    """Return the text; `ends_with` is what ends the sandbox, and `has_next` asks for what to do next."""
    count = len(record.nodes)
    lines = [
        f"The sandbox is up, with {count} node{'' if count == 1 else 's'}; {ends_with} ends it.",
        f"kubeconfig: {place.kubeconfig}",
        "",
        *(f"  {line}" for line in exports(place, environment)),
    ]
    if has_next:
        lines += [
            "",
            "Next:",
            "  kubectl get nodes",
            "  devplug sandbox run -- ./my-plugin --dir {dir}",
            "  devplug sandbox describe",
        ]
    if shutil.which("kubectl", path=environment.get("PATH")) is None:
        lines += ["", f"There is no kubectl on the PATH; how to get one: {_KUBECTL}"]
    return "\n".join(lines)
