"""The recorded kubectl session as steps to play: commands, what happens between them, and the comparison.

A step is named as its recording in data/kubectl, whose README says how it was made.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from devplug.sandbox.api.kinds import SERVED
from tests.sandbox.jsons import KUBECTL
from tests.sandbox.kubectl.leaves import (
    Leaf,
    description_leaves,
    json_leaves,
    line_leaves,
    metric_leaves,
    table_leaves,
)
from tests.sandbox.kubectl.mask import masked, without_lines


class Between(StrEnum):
    """What happens between two commands of the recording, though it does not show it."""

    PLUGIN_STARTS = "the plugin is started"
    PLUGIN_STOPS = "the plugin is stopped"
    CLEANS_UP = "what 20 to 42 have made is deleted"


_ORDER: Final = (
    Between.PLUGIN_STARTS,
    "01-capacity.txt",
    "02-apply.txt",
    "03-pods.txt",
    "04-pod-json.txt",
    "05-patch-widget.txt",
    "06-widget.txt",
    "07-apply-widgets.txt",
    "08-get-pods-wide.txt",
    "09-events.txt",
    "10-describe-pending.txt",
    "11-describe-running.txt",
    "12-describe-node.txt",
    "13-get-nodes.txt",
    "14-node-json.txt",
    "20-bound.txt",
    "21-bound-get.txt",
    "22-bound-status.txt",
    "23-bound-events.txt",
    "30-invalid-fraction.txt",
    "31-invalid-overcommit.txt",
    "32-requests-only.txt",
    "33-invalid-noslash.txt",
    "34-invalid-kubernetesio.txt",
    "35-invalid-upper.txt",
    "36-invalid-negative.txt",
    "37-zero.txt",
    "38-unknown.txt",
    "39-unknown-events.txt",
    "40-quota.txt",
    "41-quota-exceeded.txt",
    "42-quota-describe.txt",
    Between.CLEANS_UP,  # 51 shows none of these pods
    Between.PLUGIN_STOPS,
    "50-plugin-stopped.txt",
    "51-plugin-stopped-pods.txt",
    "52-pod-health-after-stop.txt",
    Between.PLUGIN_STARTS,
    "53-plugin-back.txt",
    "43-podresources-metrics.txt",  # it counts two registrations, so it was recorded after 53
    "54-remove-widget.txt",
    "55-widget-left.txt",
    "60-table-pods.json",
    "61-table-nodes.json",
    "62-table-events.json",
    "63-discovery-core-v1.json",
    "64-version.json",
    "65-pod.json",
)

_PATHS: Final = {
    "43-podresources-metrics.txt": "/api/v1/nodes/worker-0/proxy/metrics",
    "60-table-pods.json": "/api/v1/namespaces/default/pods",
    "61-table-nodes.json": "/api/v1/nodes",
    "62-table-events.json": "/api/v1/namespaces/default/events",
    "63-discovery-core-v1.json": "/api/v1",
    "64-version.json": "/version",
    "65-pod.json": "/api/v1/namespaces/default/pods/uses-resource",
}
"""What was asked over HTTP, and not with kubectl. 43 asked the kubelet's own port, which no node here has."""

_SERVED: Final = frozenset(one.plural for one in SERVED if not one.group)

_METRICS: Final = re.compile(
    r"^(kubelet_device_plugin|kubelet_pod_resources|# (HELP|TYPE) kubelet_device_plugin).*\n", re.MULTILINE
)
"""The lines that 43 looks for, as in its command."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is not as recorded; an empty one is not there."""

    place: str
    recorded: str
    shown: str


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the session, and what it showed."""

    name: str
    command: str
    recorded: str

    @property
    def path(self) -> str:
        """What is asked of the API server where no kubectl is in it, else nothing."""
        return _PATHS.get(self.name, "")

    @property
    def media_type(self) -> str:
        """What the answer is asked to be."""
        table = "application/json;as=Table;g=meta.k8s.io;v=v1"
        return table if "-table-" in self.name else "application/json"

    @property
    def kubectl(self) -> list[str]:
        """The arguments of kubectl, without the expression that its output is put through."""
        return shlex.split(self.command.partition(" | ")[0])[1:]

    @property
    def expression(self) -> str:
        """The expression of jq that the output of kubectl is put through, or nothing."""
        _, is_piped, filter_ = self.command.partition(" | ")
        return shlex.split(filter_)[1] if is_piped and not self.path else ""

    @property
    def changes(self) -> bool:
        """Whether the command changes something, so that it can be given only once."""
        return bool(self.kubectl) and self.kubectl[0] in {"apply", "patch"}


def _read(name: str) -> Step:
    content = (KUBECTL / name).read_text()
    if name.endswith(".json"):
        return Step(name, "", content)
    command, _, recorded = content.partition("\n")
    return Step(name, command.removeprefix("$ ").strip(), recorded)


STEPS: Final = tuple(one if isinstance(one, Between) else _read(one) for one in _ORDER)
"""The session in the order in which it happened."""


def step_named(number: str) -> Step:
    """Return the step with that number."""
    (found,) = (step for step in STEPS if isinstance(step, Step) and step.name.startswith(f"{number}-"))
    return found


def differences(step: Step, shown: str) -> list[Difference]:
    """Return where an output is not as recorded, as far as the mask lets it be seen."""
    recorded = _compared(step, without_lines(step.name, step.recorded))
    found = _compared(step, shown)
    places = [*recorded, *(place for place in found if place not in recorded)]
    result = [
        Difference(place, recorded.get(place, ""), found.get(place, ""))
        for place in places
        if recorded.get(place) != found.get(place)
    ]
    if not result and list(recorded) != list(found):
        return [Difference("order", " ".join(recorded), " ".join(found))]
    return result


def filtered(expression: str, output: str) -> str:
    """Return what jq would make of JSON: only as much of its language as the recordings use.

    The machine's own jq is not asked, so that the playback is the same where there is none.
    """
    value = json.loads(output)
    if expression.startswith("{"):
        parts = (pair.split(": ", 1) for pair in expression.strip("{}").split(", "))
        results: list[object] = [{key: _found(value, path) for key, path in parts}]
    else:
        results = [_found(value, path) for path in expression.split(", ")]
    return "".join(f"{json.dumps(one, indent=2)}\n" for one in results)


def _found(value: object, path: str) -> object:
    for key, name, index in re.findall(r'\["([^"]+)"\]|\.(\w+)|\[(\d+)\]', path):
        if isinstance(value, list):
            value = value[int(index)]
        else:
            value = value.get(key or name) if isinstance(value, dict) else None
    return value


def _compared(step: Step, text: str) -> dict[str, str]:
    """Return the values that are compared; those that stand in the same place are numbered."""
    seen: Counter[str] = Counter()
    result = {}
    for place, value in masked(step.name, leaves_of(step, text)):
        seen[place] += 1
        result[place if seen[place] == 1 else f"{place} #{seen[place]}"] = value
    return result


def leaves_of(step: Step, text: str) -> Iterator[Leaf]:
    match step.name.partition("-")[0]:
        case "43":
            return metric_leaves("".join(found[0] for found in _METRICS.finditer(text)))
        case "62":
            return json_leaves(json.dumps(_events_of(json.loads(text), "pod/k8sio")))
        case "63":
            return json_leaves(json.dumps(_served(json.loads(text))))
    if text.startswith(("{", "[", '"')):
        return json_leaves(text)
    if step.kubectl[:1] == ["describe"]:
        return description_leaves(text)
    return table_leaves(text) if step.kubectl[:1] == ["get"] else line_leaves(text)


def _events_of(table: Any, about: str) -> Any:
    """Return a table with only the rows about one object: the recording keeps one, and a stranger's."""
    return {**table, "rows": [row for row in table["rows"] if about in row["cells"]]}


def _served(discovery: Any) -> Any:
    """Return the answer with what the sandbox serves, by name; what it has to refuse is listed otherwise."""
    found = {one["name"]: one for one in discovery["resources"]}
    return {
        **discovery,
        "resources": {name: one for name, one in found.items() if name.partition("/")[0] in _SERVED},
    }
