"""The page as HTML: its frame, and the tables for a browser without scripts. Pure; all text is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from devplug.errors import printable
from devplug.monitor.words import age

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devplug.monitor.page.state import NodeView, Resource, State, Tile

_TABLES: Final = "<!-- tables -->"
_TITLE: Final = "<!-- title -->"
_NOTHING: Final = "-"


def page(frame: str, state: State) -> str:
    """Return the page: the frame with the title, and with the tables in its `noscript`."""
    names = ", ".join(node["name"] for node in state["nodes"][:3]) or ", ".join(state["waiting"][:3])
    # The tables come last: what they quote may look like a mark.
    head, mark, tail = frame.replace(_TITLE, _shown(f"{names} - devplug" if names else "devplug")).partition(
        _TABLES
    )
    return head + ("\n".join(_all(state)) if mark else "") + tail


def _all(state: State) -> Iterator[str]:
    for name in state["waiting"]:
        yield f"<p>Nothing is known of {_shown(name)} yet.</p>"
    for node in state["nodes"]:
        yield from _node(node, state["at"])
    if state["changes"]:
        yield "<h2>Last changes</h2>"
        yield from _table(
            ("Ago", "Node", "What", "Resource", "Device", "More"),
            (
                (
                    age(state["at"], change["at"]),
                    change["node"],
                    change["kind"],
                    change["resource"],
                    change["device"]
                    + (f" and {change['more_devices']} more" if change["more_devices"] else ""),
                    change["text"] + (f" x {change['times']}" if change["times"] > 1 else ""),
                )
                for change in state["changes"]
            ),
        )


def _node(node: NodeView, now: float) -> Iterator[str]:
    yield f"<h2>{_shown(node['name'])}</h2>"
    for text in _troubles(node):
        yield f"<p>{_shown(text)}</p>"
    yield from _table(
        ("Resource", "Capacity", "Allocatable", "Held", "Kubelet"),
        (
            (
                one["name"],
                _capacity(one),
                str(one["allocatable"]),
                str(one["held"]),
                _registered(one, now),
            )
            for one in node["resources"]
        ),
    )
    for driver in node["drivers"]:
        yield f"<p>{_shown(driver['text'])}</p>"
    yield from _table(
        ("NUMA", "Resource", "Device", "Health", "Since", "Held by", "Why"),
        (
            (
                ", ".join(map(str, board["numa_nodes"])),
                tile["resource"],
                _device(tile),
                tile["health"],
                "" if tile["since"] is None else age(now, tile["since"]),
                _held_by(tile),
                tile["reason"],
            )
            for board in node["boards"]
            for group in board["groups"]
            for tile in group["tiles"]
        ),
    )
    if node["hidden"]:
        yield f"<p>{node['hidden']} more devices are not shown.</p>"


def _troubles(node: NodeView) -> Iterator[str]:
    yield from node["problems"]
    if node["kubelet_trouble"]:
        yield f"The kubelet does not say who holds what: {node['kubelet_trouble']}"
    for process in node["processes"]:
        yield from (f"Not ready: {fault}" for fault in process["faults"])
        yield from process["problems"]


def _device(tile: Tile) -> str:
    return f"{tile['id']} x {tile['replicas']}" if tile["replicas"] > 1 else tile["id"]


def _held_by(tile: Tile) -> str:
    if not tile["held"]:
        return ""
    names = tile["holders"] or ["may be held"]
    more = [f"and {tile['more_holders']} more"] if tile["more_holders"] else []
    return ", ".join([*names, *more])


def _capacity(resource: Resource) -> str:
    counted = f"{resource['capacity']}{'+' if resource['is_registered'] is None else ''}"
    shares = f" ({resource['found']} x {resource['replicas']} replicas)" if resource["replicas"] > 1 else ""
    return counted + shares


def _registered(resource: Resource, now: float) -> str:
    if resource["is_registered"] is None:
        return resource["fault"] or ("another driver's" if resource["driver"] else "another plugin's")
    if resource["fault"]:
        return f"not ready: {resource['fault']}"
    if not resource["is_registered"]:
        return "waits for its first device"
    since = resource["registered_at"]
    word = "registered for claims" if resource["driver"] else "registered"
    return word if since is None else f"{word} {age(now, since)} ago"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "<table><thead><tr>"
    yield "".join(f'<th scope="col">{_shown(head)}</th>' for head in heads)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{_shown(cell or _NOTHING)}</td>' for cell in row)}</tr>"
    yield "</tbody></table>"


def _shown(text: str) -> str:
    """Return a text as HTML shows it, with the codes of marks that would change its direction."""
    return escape(printable(text))
