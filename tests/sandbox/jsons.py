"""Strategies for JSON, and the recorded kubectl sessions, for the tests of the sandbox's API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from devplug.sandbox.api.errors import StatusError

KUBECTL = Path(__file__).parent / "data" / "kubectl"
"""What kubectl showed on a real node; its README says how it was recorded."""

KEYS = st.sampled_from(["a", "b", "c", "a/b", "m~n", ""])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "y"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
MAPS = st.dictionaries(KEYS, VALUES, max_size=4)


def recorded(name: str) -> Any:
    """A recorded answer of the API server."""
    return json.loads((KUBECTL / name).read_text())


def printed(name: str) -> str:
    """What kubectl printed, without the command in the first line."""
    return (KUBECTL / name).read_text().partition("\n")[2].rstrip("\n")


def as_kubectl(refusal: StatusError) -> str:
    """What kubectl prints of an Invalid answer (kubectl pkg/cmd/util StandardErrorMessage)."""
    details: Any = refusal.status["details"]
    kind = f"{details['kind']}.{details['group']}" if "group" in details else details["kind"]
    causes = [f"{cause['field']}: {cause['message']}" for cause in details["causes"]]
    told = causes[0] if len(causes) == 1 else "\n" + "\n".join(f"* {cause}" for cause in causes)
    return f'The {kind} "{details["name"]}" is invalid: {told}'
