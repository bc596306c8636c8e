"""The boot of the machine: device numbers and CDI files of another boot mean nothing."""

from __future__ import annotations


def boot_id() -> str:
    """Return what tells this boot of the machine from any other."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:  # noqa: PTH123 -- no file of ours
        return file.read().strip()
