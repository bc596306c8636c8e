"""The USB gadgets that a group of squat's plugin names, as selectors of ours. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.tree import ScalarNode
from devplug.daemon.importing.fields import Fields
from devplug.daemon.importing.goglobs import literal
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.daemon.importing.remarks import At, Remarks
    from devplug.yamltext import Value

__all__ = ["usb_selectors"]

_HEX: Final = re.compile(r"[0-9A-Fa-f]{1,4}")


def usb_selectors(group: At, specs: Sequence[At], remarks: Remarks) -> list[tuple[Value, At]]:
    """Return a selector for each spec that can match something; tells what works differently.

    All gadgets that any spec of the group matches are one device of squat's plugin (squat:deviceplugin/
    usb.go:258-297). Here each is a device of its own.
    """
    selectors: list[tuple[Value, At]] = [
        (selector, at) for at in specs if (selector := _selector(at, remarks)) is not None
    ]
    if len(specs) > 1:
        message = (
            "squat's plugin makes one device of all these gadgets together; here each gadget is a device of "
            "its own, so a pod that needs several asks for several"
        )
        remarks.warn(group, message)
    elif selectors:
        message = (
            "squat's plugin makes one device of all gadgets with these IDs together; here each is a device "
            "of its own"
        )
        remarks.note(group, message)
    return selectors


def _selector(at: At, remarks: Remarks) -> Value | None:
    fields = Fields(at, remarks, "squat's plugin")
    ids: dict[str, Value] = {}
    for key in ("vendor", "product"):
        found = _usb_id(fields.take(key), at, key, remarks)
        if found is None:
            return None
        ids[key] = found
    if serial := fields.text("serial"):
        ids["serial"] = literal(serial)
    fields.rest()
    return ids


def _usb_id(at: At | None, spec: At, key: str, remarks: Remarks) -> str | None:
    """Return an ID as 4 hex digits, or None, with a warning, if squat's plugin would match nothing by it.

    Without quotes YAML makes a number of it, of which the flag and the file of squat's plugin make different
    IDs (squat:deviceplugin/usb.go:58-93); what the digits say is what was meant.
    """
    node = at.node if at is not None else None
    text = node.text if isinstance(node, ScalarNode) and node.kind != "null" else ""
    if at is None or not text:  # squat:deviceplugin/usb.go:245: both are compared, whatever they are
        message = f"has no {key}, and squat's plugin matches nothing without one; left out"
        remarks.warn(at or spec, message)
        return None
    if not _HEX.fullmatch(text):
        remarks.warn(at, f"{quoted(text)} is not 1 to 4 hex digits; left out")
        return None
    if isinstance(node, ScalarNode) and node.kind != "text":
        remarks.note(at, f"YAML makes a number of {text}; taken as the ID {text.zfill(4)}")
    return text.lower().zfill(4)
