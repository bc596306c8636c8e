"""What a configuration, the parameters of a claim, or a device's own text may set in a container. Pure.

One list for all of them: whoever may not choose a program of the container does so by no way.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ENV_VALUE_LIMIT_BYTES", "container_path_fault", "loads_code"]

ENV_VALUE_LIMIT_BYTES: Final = 32 * 1024
"""A quarter of what Linux takes as one argument or variable, so that long lists of devices still fit."""

_LOADER_PREFIXES: Final = ("LD_", "BASH_FUNC_")
_LOADER_VARIABLES: Final = frozenset(
    {
        "BASH_ENV",
        "CLASSPATH",
        "ENV",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "IFS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "LOCPATH",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PATH",
        "PERL5LIB",
        "PERL5OPT",
        "PROMPT_COMMAND",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "RUBYLIB",
        "RUBYOPT",
        "SHELLOPTS",
        "_JAVA_OPTIONS",
    }
)
"""Variables by which ld.so(8), libc, shells and interpreters find the code that they run."""

_OWN_FOLDERS: Final = (
    "/proc",
    "/sys",
    "/dev/fd",
    "/dev/mqueue",
    "/dev/pts",
    "/dev/shm",  # noqa: S108 -- the container's
    "/run/secrets",
    "/var/run/secrets",
)
"""Folders of a container that the runtime or the kubelet makes (OCI runtime spec, config-linux.md)."""

_OWN_FILES: Final = frozenset(
    {
        "/dev/console",
        "/dev/core",
        "/dev/full",
        "/dev/null",
        "/dev/ptmx",
        "/dev/random",
        "/dev/stderr",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/termination-log",
        "/dev/tty",
        "/dev/urandom",
        "/dev/zero",
        "/etc/group",
        "/etc/hostname",
        "/etc/hosts",
        "/etc/ld.so.cache",
        "/etc/ld.so.preload",
        "/etc/passwd",
        "/etc/resolv.conf",
        "/etc/shadow",
    }
)
"""Files that every container has, and programs believe."""

_ROOT_FOLDERS: Final = (
    *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "opt", "proc", "root", "run"),
    *("sbin", "srv", "sys", "tmp", "usr", "var"),
)


def loads_code(variable: str) -> bool:
    """Whether a variable decides which programs and libraries run in a container."""
    return variable in _LOADER_VARIABLES or variable.startswith(_LOADER_PREFIXES)


def container_path_fault(path: str, *, is_literal: bool = False) -> str:
    """Return why nothing may be put at this path of a container, in normal form; "" if it may.

    With `is_literal` the whole path stands in the configuration, whose author may replace a folder such as
    `/opt`; a device's text and a claim may not.
    """
    if path == "/" or (not is_literal and path.count("/") == 1 and path[1:] in _ROOT_FOLDERS):
        return "is a folder that each container has"
    if any(path == folder or path.startswith(f"{folder}/") for folder in _OWN_FOLDERS):
        return "is in a folder that the runtime makes in each container"
    return "is a file that each container has" if path in _OWN_FILES else ""
