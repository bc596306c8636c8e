"""A system call filter that refuses what the runtimes' default profile refuses without capabilities.

The profile lists all that is allowed (containerd contrib/seccomp/seccomp_default.go); this one lists what is
not, so that it needs no library. It refuses `ptrace` too, which the profile allows on new kernels.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import Final

# linux/audit.h: AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64.
_ARCHES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

REFUSED: Final = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51),
    "clock_settime": (227, 112), "delete_module": (176, 106), "finit_module": (313, 273),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "init_module": (175, 105),
    "io_uring_setup": (425, 425), "kexec_file_load": (320, 294), "kexec_load": (246, 104),
    "keyctl": (250, 219), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "pivot_root": (155, 41), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "reboot": (169, 142), "request_key": (249, 218),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
}  # fmt: skip
"""What is refused with EPERM, by its numbers on x86-64 and on arm64."""

_CLONE: Final = (56, 220)
_CLONE3: Final = 435
_NAMESPACES: Final = (
    0x7E020000  # linux/sched.h: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
)

# linux/bpf_common.h and linux/seccomp.h; fields of struct seccomp_data: nr at 0, arch at 4, args at 16.
_LOAD, _IS_EQUAL, _HAS_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_PR_SET_SECCOMP, _FILTER = 22, 2


def filter_program(machine: str) -> bytes:
    """Return the filter for `x86_64` or `aarch64`, as an array of `struct sock_filter`.

    `clone3` is answered with ENOSYS, as by the profile: no filter sees its flags, and libcs fall back to
    `clone`.
    """
    column = [*_ARCHES].index(machine)

    def step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("=HBBI", code, then, otherwise, value)

    def refused(number: int, code: int = errno.EPERM) -> bytes:
        return step(_IS_EQUAL, number, 0, 1) + step(_RETURN, _REFUSE | code)

    return b"".join(
        [
            step(_LOAD, _ARCH),
            step(_IS_EQUAL, _ARCHES[machine], 1, 0),
            step(_RETURN, _KILL),
            step(_LOAD, _NUMBER),
            *(refused(numbers[column]) for numbers in REFUSED.values()),
            refused(_CLONE3, errno.ENOSYS),
            step(_IS_EQUAL, _CLONE[column], 0, 3),
            step(_LOAD, _FIRST_ARGUMENT),
            step(_HAS_BITS, _NAMESPACES, 0, 1),
            step(_RETURN, _REFUSE | errno.EPERM),
            step(_RETURN, _ALLOW),
        ]
    )


def refusing_program(number: int, code: int) -> bytes:
    """Return a filter that answers one system call with an error, by its number on this machine."""
    steps = [(_LOAD, 0, 0, _NUMBER), (_IS_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | code)]
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, (_RETURN, 0, 0, _ALLOW)])


def install(program: bytes | None = None) -> None:
    """Filter this thread and all that it starts; it must have `no_new_privs`. Raises `OSError`."""
    program = program or filter_program(platform.machine())
    steps = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)))
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _FILTER, head, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")
