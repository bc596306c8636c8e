"""Templates, paths, globs and CDI specs of odd values: what is made of them stays where it belongs."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import TYPE_CHECKING, Final

from devplug.cdi.spec import (
    CdiDevice,
    CdiMount,
    CdiNode,
    CdiSpec,
    bind_options,
    device_name,
    faults,
    kind_of,
    parse,
    text,
)
from devplug.daemon.cdi.spec_files import CdiFolder
from devplug.daemon.config.globs import covers, covers_whole_root, device_glob_fault, path_fault, regex_fault
from devplug.daemon.config.host_paths import container_path_faults, danger_of, dangerous_fault
from devplug.daemon.config.loader import DEVICE_ROOTS
from devplug.daemon.config.templates import PLURALS, Missing, Writing, parse_template, render_all, render_one
from devplug.errors import PluginError
from devplug.k8s.resource_names import resource_name_fault
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.fuzzing.hunt import ODD_TEXTS, Clock, Entry, entries, hunt, mutated, replayed

if TYPE_CHECKING:
    from random import Random

    from torture.catalogue import Trial

ONE_SECONDS: Final = 0.5
"""Of this thread's processor, for one template or one glob."""

WORDS: Final = tuple(
    word.encode()
    for word in (
        *(
            f"{{{name}}}"
            for name in (*PLURALS, *PLURALS.values(), "count", "json", "attr.a/b", "containerPath.x")
        ),
        *(
            "{{",
            "}}",
            "{",
            "}",
            "{}",
            "{id!r}",
            "{0}",
            "/dev/",
            "/",
            "..",
            "*",
            "?",
            "[a-z]",
            "[!a]",
            "[]",
            "[",
            "]",
        ),
        *("tty", "mem", "kmem", "sda", "nvme0n1", ".", "/etc/", "/proc", "$HOME", "~", "(", "|", ")", "a"),
        *ODD_TEXTS,
    )
)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _changed(entry: Entry, random: Random) -> bytes:
    content = mutated(entry.content[:300], random, words=WORDS)
    if random.random() < 0.001:
        content *= random.choice((20, 300))
    return content[:6_000]


# ── templates ─────────────────────────────────────────────────────────────────────────────────────

VALUES: Final = (
    *(
        "a",
        "0",
        "tty.USB0",
        "..",
        ".",
        "../../etc/shadow",
        "/etc/shadow",
        "a/b",
        "a,b",
        "",
        " ",
        "%2C",
        "{id}",
    ),
    *("x" * 5_000, "\0", "\n", "é", "\ud800", "$(id)", "=", "--help", "a:b"),
)
"""What a device may say of itself: some of it is written by who made the USB device."""


def _facts(content: bytes) -> dict[str, str | int]:
    """Return facts that the template alone decides, so that a find can be made small."""
    start = sum(content)
    return {name: VALUES[(start + place) % len(VALUES)] for place, name in enumerate((*PLURALS, "attr.a/b"))}


@case(
    "templates",
    fault="X40",
    promise="A template is refused in words, or renders to a path below where it was written to lead",
    count=50_000,
    unit="templates",
    invariants="I3 I4",
)
async def templates(trial: Trial) -> None:
    """Parse and render changed templates, with values that try to lead elsewhere."""
    kept = entries("templates")
    clock = Clock(ONE_SECONDS)
    parsed = 0

    def fault(entry: Entry) -> str:
        nonlocal parsed
        source = _text(entry.content)
        with clock:
            try:
                found = _template_fault(source, _facts(entry.content))
            except Exception as error:  # noqa: BLE001 -- any is a fault
                return f"I4: {type(error).__name__}: {error}"
        parsed += found is None
        return found or clock.fault

    replayed(trial, kept, fault)
    async with nothing_kept(trial):
        await hunt(trial, kept, _changed, fault)
    trial.figure("parsed", f"{parsed:,}")
    trial.figure("longest", f"{1000 * clock.longest:.0f} ms")


def _template_fault(source: str, facts: dict[str, str | int]) -> str | None:
    try:
        template = parse_template(source)
    except ValueError as error:
        return "" if str(error) and "\n" not in str(error) else f"X40: it is refused with {str(error)!r}"
    if str(template) != source:
        return "X40: it is not what was written"
    everything = render_all(template, [facts, facts])
    if not template.variables and everything != template.literal:
        return "X40: a template without variables renders to something else"
    name = render_one(template, facts, Writing.NAME)
    if not template.literal and isinstance(name, str) and not re.fullmatch(r"[A-Za-z0-9_]*", name):
        return f"X40: a name becomes {name!r}"
    path = render_one(template, facts, Writing.PATH)
    if isinstance(path, Missing) or any(container_path_faults(template, "usb")):
        return None
    wrong = path_fault(path.removesuffix("/") or "/")
    if wrong and "no path has more" not in wrong:
        return f"X40: a path that may be written becomes one that may not: {wrong}"
    first = template.parts[0]
    folder = first.rpartition("/")[0] if isinstance(first, str) else ""
    return None if path.startswith(f"{folder}/") else f"X40: it leads out of {folder}: {path[:200]}"


# ── paths and globs ───────────────────────────────────────────────────────────────────────────────

NODES: Final = (
    *("/dev/mem", "/dev/kmem", "/dev/port", "/run/mem", "/tmp/kmem", "/dev/sda", "/dev/sdb1", "/dev/nvme0n1"),
    *("/dev/nvme1n1p2", "/dev/mmcblk0", "/dev/dm-0", "/dev/md127", "/dev/vda"),
)
"""What no glob may give out that is taken without `allow`."""

PATHS: Final = (
    *NODES,
    "/dev/ttyUSB0",
    "/dev/.hidden",
    "/dev/a",
    "/dev/snd/pcmC0D0c",
    "/dev/]",
    "/dev/[",
    "/dev/-",
)


@case(
    "paths-and-globs",
    fault="X40",
    promise="A glob that is taken covers what a shell's would, below the device folders: no disk, no memory",
    count=30_000,
    unit="globs",
    invariants="I3 I4",
)
async def paths_and_globs(trial: Trial) -> None:
    """Judge changed paths and globs, and compare what they cover with Python's own globs."""
    kept = entries("globs")
    clock = Clock(ONE_SECONDS)
    taken = 0

    def fault(entry: Entry) -> str:
        nonlocal taken
        with clock:
            try:
                found = _glob_fault(_text(entry.content))
            except Exception as error:  # noqa: BLE001 -- any is a fault
                return f"I4: {type(error).__name__}: {error}"
        taken += found is None
        return found or clock.fault

    replayed(trial, kept, fault)
    async with nothing_kept(trial, growth_limit_bytes=24 * 1024 * 1024):  # patterns of 1,024 globs stay
        await hunt(trial, kept, _changed, fault)
    trial.figure("taken", f"{taken:,}")
    trial.figure("longest", f"{1000 * clock.longest:.0f} ms")


def _glob_fault(glob: str) -> str | None:
    for said in (path_fault(glob), regex_fault(glob), resource_name_fault(glob), danger_of(glob)):
        if said and "\n" in said:
            return f"X40: it is refused with {said!r}"
    covered = {path for path in PATHS if covers(glob, path)}
    if device_glob_fault(glob, DEVICE_ROOTS) or dangerous_fault(
        glob, (), DEVICE_ROOTS, raw_disks_allowed=False
    ):
        return ""
    if wrong := covered - {path for path in PATHS if _as_in_a_shell(glob, path)}:
        return f"X40: it covers {sorted(wrong)}, which no shell would"
    if any(covers(glob, path) for path in ("/etc/shadow", "/proc/1/mem", "/dev", "/")):
        return "X40: it leads out of the device folders"
    if not covers_whole_root(glob, DEVICE_ROOTS) and (wrong := covered & set(NODES)):
        return f"X40: it gives out {sorted(wrong)}"
    return None


def _as_in_a_shell(glob: str, path: str) -> bool:
    ours, theirs = glob.split("/"), path.split("/")
    return len(ours) == len(theirs) and all(map(fnmatch.fnmatchcase, theirs, ours))


# ── CDI specs ─────────────────────────────────────────────────────────────────────────────────────


@case(
    "cdi-specs",
    fault="X17",
    promise="A CDI spec is refused with its faults, or is a file that runtimes read as it was meant",
    count=20_000,
    unit="specs",
    invariants="I3 I4",
)
async def cdi_specs(trial: Trial) -> None:
    """Write specs of odd values, and read them back; every hundredth through a folder."""
    folder = CdiFolder(trial.folder / "cdi")
    written = 0
    async with nothing_kept(trial):
        for turn in trial.rounds():
            spec = _spec(turn.random)
            try:
                if faults(spec):
                    continue
                written += 1
                if found := _spec_fault(spec):
                    trial.broke(f"{found}: {spec}", turn.number)
                if not turn.number % 100:
                    _through_folder(trial, folder, spec, turn.number)
            except Exception as error:  # noqa: BLE001 -- any is a fault
                trial.broke(f"I4: {type(error).__name__}: {error}: {spec}", turn.number)
        for name in list(folder._locked):
            folder.remove(name)
    trial.figure("written", f"{written:,}")


def _spec(chance: Random) -> CdiSpec:
    def word() -> str:
        letters = ("a", "Z", "9", "-", "_", *(ODD_TEXTS if chance.random() < 0.05 else ()))
        return "x" + "".join(chance.choice(letters) for _ in range(chance.randint(0, 4)))

    def path() -> str:
        return chance.choice((*("/dev/", "/a/", "/") * 5, "")) + word()

    def device() -> CdiDevice:
        nodes = tuple(
            CdiNode(path(), path(), chance.choice((*("rw", "r", "rwm") * 5, "")), *_owner(chance))
            for _ in range(chance.choice((0, 1, 1, 2)))
        )
        mounts = tuple(CdiMount(path(), path(), bind_options()) for _ in range(chance.randint(0, 1)))
        envs = {word(): word() for _ in range(chance.randint(0, 2))}
        return CdiDevice(device_name(word()), nodes, mounts, envs)

    kind = kind_of(f"example.com/{chance.choice(('a', '3d.card', 'x' * 63, 'a_b', '-'))}")
    return CdiSpec(kind, tuple(device() for _ in range(chance.choice((0, 1, 1, 2, 2, 2, 3)))))


def _owner(chance: Random) -> tuple[int | None, int | None, int | None]:
    def number() -> int | None:
        return chance.choice((*(None,) * 40, 0, 0o660, 2**32))

    return number(), number(), number()


def _spec_fault(spec: CdiSpec) -> str:
    content = text(spec)
    if re.search(r"[^ -~\n\U00010000-\U0010ffff]", content):
        return "X17: it has characters that YAML's readers do not take"
    document = json.loads(content)
    names = [device["name"] for device in document["devices"]]
    if any(not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*[A-Za-z0-9]", name) for name in names):
        return f"X17: names that no runtime takes: {names}"
    again = parse(content)
    if again is None or text(again) != content or set(again.devices) != set(spec.devices):
        return "X17: it reads back as something else"
    return ""


def _through_folder(trial: Trial, folder: CdiFolder, spec: CdiSpec, number: int) -> None:
    try:
        folder.write(spec)
    except PluginError as error:
        trial.broke(f"X17: the folder finds what the rules do not: {error}", number)
        return
    trial.check(not folder.write(spec), "X17: the same spec is written twice", number)
    trial.check(folder.read(spec.kind) is not None, "X17: it cannot be read again", number)
