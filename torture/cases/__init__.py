"""The cases, in files by subject; `torture.catalogue` imports them, in this order."""

from __future__ import annotations

from typing import Final

__all__ = ["SUBJECTS"]

SUBJECTS: Final = (
    # The kubelet, and its calls.
    "kubelet_restarts",
    "kubelet_killed",
    "kubelet_hangs",
    "register_answers",
    "streams_lost",
    "lost_events",
    "connections",
    # The plugin's process, its folder and its author's code.
    "plugin_kills",
    "plugin_signals",
    "plugin_twins",
    "plugin_sockets",
    "plugin_folders",
    "plugin_hooks",
    "blocked_code",
    "crashes",
    "full_disks",
    "process_limits",
    "clock_steps",
    # Devices, and who gets them.
    "device_health",
    "holds",
    "node_swaps",
    "path_attacks",
    "event_storms",
    "many_devices",
    "allocate",
    "allocate_cancelled",
    "preferences",
    "pod_resources",
    "checkpoints",
    # Claims, and the driver that prepares them.
    "claim_deaths",
    "pod_claims",
    # Texts and bytes of others.
    "config_files",
    "config_edits",
    "rules_and_templates",
    "foreign_texts",
    "messages",
    "wire_frames",
    "wire_limits",
    "wire_peers",
    "monitoring_clients",
    # All of it at once.
    "fleets",
    "node_day",
    "schedules",
)
"""Names of files; nothing is imported here, as some programs need one of them alone."""
