"""`devplug run` is small: one thread, and nothing in memory that serving devices does not need."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from devplug.kubelet.kubelet import Kubelet
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from tests.cli.programs import STATIC, config_file, ended, started
from tests.kubelet.fakes import pod
from tests.waiting import until

UNWANTED = re.compile(
    r"grpc|google|_ssl|rich|click|gettext|difflib|http\.|email|shutil|tempfile|devplug\.(kubelet|sandbox|conformance)\b"
    r"|devplug\.cli\.demo|devplug\.wire\.grpcio|devplug\.daemon\.health|devplug\.attributes$|secrets|hmac"
)
"""`ssl` and `_hashlib` are asked for, and are not there: `_ssl` is what would come of it."""

DATACLASSES = {
    "devplug.devices",
}
"""Who may have some: each takes more of a start than the module around it. The others have Structs."""


def source_of(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text()


def threads_of(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


async def test_it_has_one_thread_and_no_module_of_others_after_all_that_it_does(short_dir: Path) -> None:
    """A thread that waited for a disk is gone a moment after it; none is kept for the next time."""

    async def scenario() -> str:
        plugin_dir = short_dir / "device-plugins"
        plugin_dir.mkdir()
        file, page = config_file(short_dir), UnixAddress(str(short_dir / "pages.sock"))
        kubelet = Kubelet(plugin_dir)
        async with asyncio.timeout(30), kubelet.running():
            arguments = ("run", "-c", file, "--plugin-dir", plugin_dir, "--listen", f"unix:{page.path}")
            with started(*arguments, PYTHONPROFILEIMPORTTIME="1") as daemon:
                await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 2)
                await kubelet.admit(pod("p", 1, "example.com/a"))
                assert b"devplug_allocations_total" in (await get(page, "/metrics")).body
                await until(lambda: any(plugin_dir.glob(".devplug/.status-*.sock")))
                (status,) = plugin_dir.glob(".devplug/.status-*.sock")
                assert b"example.com/a" in (await get(UnixAddress(str(status)), "/status")).body
                file.write_text(STATIC.replace("b0", "b0, b1, b2"))
                await kubelet.wait(lambda: kubelet.allocatable().get("example.com/b") == 3)
                await until(lambda: threads_of(daemon.pid) == 1)
                daemon.terminate()
                _, said = await asyncio.to_thread(daemon.communicate)
                assert ended(daemon) == 0
                return said

    said = await scenario()
    loaded = [line.rpartition("|")[2].strip() for line in said.splitlines() if "import time:" in line]
    assert "devplug.plugin.lifecycle" in loaded
    before_it_registers = loaded[: loaded.index("devplug.wire.channel")]
    assert {"h11", "devplug.metrics.probes", "devplug.daemon.reporter"} & {*before_it_registers} == set()
    assert sorted({name for name in loaded if UNWANTED.match(name)}) == []
    ours = {name for name in loaded if name.startswith("devplug.")}
    assert {name for name in ours if "@dataclass" in source_of(name)} <= DATACLASSES


def test_what_msgspec_does_without_others_still_get() -> None:
    program = (
        "import sys\n"
        "from devplug.cli.startup import import_msgspec\n"
        "import_msgspec()\n"
        "print('msgspec' in sys.modules, 'typing_extensions' in sys.modules)\n"
        "import typing_extensions\n"
        "import_msgspec()\n"
        "print(sys.modules['typing_extensions'] is typing_extensions)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False", "True"]
