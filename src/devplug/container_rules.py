"""What a configuration, the parameters of a claim, or a device's own text may set in a container. Pure.

One list for all of them: whoever may not choose a program of the container does so by no way.
"""

from __future__ import annotations

import re
from typing import Final

ENV_VALUE_LIMIT_BYTES: Final = 32 * 1024
"""A quarter of what Linux takes as one argument or variable, so that long lists of devices still fit."""

_LOADER_VARIABLES: Final = re.compile(
    r"""
    LD_.* | DYLD_.* | GLIBC_TUNABLES | GCONV_PATH | LOCPATH | NLSPATH    # ld.so(8), libc
    | PATH | IFS | ENV | BASH_ENV | BASH_FUNC_.* | SHELLOPTS | BASHOPTS | PROMPT_COMMAND | ZDOTDIR | CDPATH
    | HOME | XDG_(CONFIG|DATA)_(HOME|DIRS)                               # files that programs read first
    | (MAN)?PAGER | LESS(OPEN|CLOSE)? | EDITOR | VISUAL | BROWSER | SHELL | (SSH|SUDO)_ASKPASS
    | GIT_.* | OPENSSL_(CONF|ENGINES|MODULES) | MAKEFLAGS | RUSTC_(WORKSPACE_)?WRAPPER
    | PYTHON[A-Z]+ | PERLLIB | PERLIO.* | PERL5[A-Z]+ | RUBY[A-Z]+ | GEM_(HOME|PATH) | BUNDLE_.*
    | NODE_(OPTIONS|PATH|REPL_EXTERNAL_MODULE) | NPM_CONFIG_.*
    | CLASSPATH | _?(JAVA|JDK_JAVA|JAVA_TOOL|CATALINA|MAVEN|GRADLE)_OPT(ION)?S
    | DOTNET_.* | CORECLR_.* | COMPlus_.* | COR_.*
    | LUA_(INIT|PATH|CPATH)(_.*)? | PHPRC | PHP_INI_SCAN_DIR | TCLLIBPATH | TCL_LIBRARY
    | R_(PROFILE|ENVIRON|LIBS).* | JULIA_.* | GUILE_.*PATH | ERL_(LIBS|[AZ]?FLAGS)
    | GTK_(MODULES|PATH) | GIO_EXTRA_MODULES | QT_(QPA_PLATFORM_)?PLUGIN_PATH
    """,
    re.VERBOSE | re.ASCII,
)
"""Variables by which ld.so(8), libc, shells, interpreters and tools find the code that they run."""

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

_SYSTEM_FOLDERS: Final = (
    *("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/root", "/sbin", "/usr"),
    "/var/spool/cron",
)
"""Folders of programs, libraries, and the files that programs read at their start."""

_CODE: Final = re.compile(
    r"""
    /usr(/local)?(/(bin|sbin|games|include|share|libexec|local))?
    | (/usr(/local)?)?/lib[^/]*(/[^/]+-linux-[^/]+)?
    | /(bin|sbin|boot|etc|root) | /etc/[^/]+\.d | /var/spool/cron(/crontabs)?
    """,
    re.VERBOSE,
)
"""Those folders as a whole, and with the libraries of one architecture."""

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
    return _LOADER_VARIABLES.fullmatch(variable) is not None


def replaces_code(path: str) -> bool:
    """Whether a mount at this path of a container, in normal form, replaces a whole folder of its system."""
    return _CODE.fullmatch(path) is not None


def container_path_fault(path: str, *, is_literal: bool = False) -> str:
    """Return why nothing may be put at this path of a container, in normal form; "" if it may.

    With `is_literal` the whole path stands in the configuration, whose author may replace a folder such as
    `/opt`, or a file of the system; a device's text and a claim may not.
    """
    if path == "/" or (not is_literal and path.count("/") == 1 and path[1:] in _ROOT_FOLDERS):
        return "is a folder that each container has"
    if any(path == folder or path.startswith(f"{folder}/") for folder in _OWN_FOLDERS):
        return "is in a folder that the runtime makes in each container"
    if path in _OWN_FILES:
        return "is a file that each container has"
    if not is_literal and any(path.startswith(f"{folder}/") for folder in _SYSTEM_FOLDERS):
        return "is in a folder of the container's programs and their settings"
    return ""
