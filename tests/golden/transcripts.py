"""Plays what a real kubectl showed of a real cluster with a DRA driver (v1.36.2) against our cluster's parts.

The files of a folder are one session, in the order of their names. Each command is given to this machine's
kubectl; one that only looks is given again, a second of the virtual clock later, until it shows what was
recorded. The driver does at the same places what the recorded one did. Compared is all that is printed, but
for what is another in every run.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final

from devplug.sandbox.registry import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from devplug.sandbox.server.listener import ApiServer
from devplug.wire.dra import ClaimName, PreparedClaim, PreparedDevice
from tests.golden.dra_cluster import Cluster, running
from tests.golden.dra_notation import ROOT
from tests.kubelet.dra_driver import FakeDriver
from tests.sandbox.server.beds import TOKEN, Kubectl, no_control, no_logs, no_metrics
from tests.virtualtime import passes

Json = Any

LOOKS_SECONDS: Final = (0, 1, 1, 2, 4, 8, 16, 32, 64)
"""How much later, by the virtual clock, a look is repeated: a prepare is tried again within 90 s."""

SLICE: Final = "00000-gpu.example.com-worker-0-x7k2p"
TAINT: Final = {"key": "example.com/unhealthy", "value": "ecc", "effect": "NoExecute"}


def _device(number: int, model: str, memory: str, firmware: str) -> Json:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "ecc": {"bool": number % 2 == 0},
            "firmware": {"version": firmware},
            "model": {"string": model},
            "numa": {"int": number % 2},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:0{number + 1}:00.0"},
        },
        "capacity": {"memory": {"value": memory}},
    }


DEVICES: Final = [
    _device(0, "alpha", "16Gi", "1.0.0"),
    _device(1, "alpha", "16Gi", "1.1.0"),
    _device(2, "beta", "40Gi", "1.2.0"),
    _device(3, "beta", "40Gi", "1.3.0"),
]


@dataclass(frozen=True)
class Step:
    """One command of the session and what it showed."""

    file: str
    command: str
    shown: str

    @property
    def words(self) -> list[str]:
        """The arguments of kubectl; the recording has no quotes, and only a jsonpath has spaces."""
        plain, is_path, path = self.command.partition(" -o jsonpath=")
        return [*plain.split()[1:], *(["-o", f"jsonpath={path}"] if is_path else [])]

    @property
    def is_file(self) -> bool:
        """Whether it shows a file that the next one reads."""
        return self.command.startswith("cat ")

    @property
    def is_looking(self) -> bool:
        """Whether the command changes nothing."""
        return self.words[0] in {"get", "describe", "api-resources"}


def steps_of(path: Path) -> Iterator[Step]:
    """Yield the commands of one transcript."""
    for block in re.split(r"^\$ ", path.read_text(), flags=re.MULTILINE)[1:]:
        command, _, shown = block.partition("\n")
        yield Step(path.name, command, shown)


# ── what is compared ──

_VARIES: Final = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<UID>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<TIME>"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "<TIME>"),
    (r"(?<![\w.-])(\d+[dhms])+(?![\w.-])", "<AGE>"),
    (r"\b10\.\d+\.\d+\.\d+\b", "<ADDRESS>"),
    (r'(?i)(resource ?version: +)"?\d+"?', r"\1<VERSION>"),
    (r'"cpu":"\d+"', '"cpu":<MACHINE>'),
    (r'"memory":"\d+Ki"', '"memory":<MACHINE>'),
    (r"(image ?id: +)sandbox://\S+", r"\1<image>"),
    (r"(containerd|sandbox)://\S+", "<container>"),
    # The recording's own "<image>" has swallowed the next line where there was none.
    (r"Image ID: +\n +Port: +<none>", "Image ID:\n    <image>"),
)

_MORE_HERE: Final = (
    r"^devicetaintrules .*\n",
    r',{"groupVersion":"resource.k8s.io/v1beta2","version":"v1beta2"}',
)
"""What only our discovery shows: the sandbox serves DeviceTaintRule without its feature gate; in the recorded
cluster the gate was off."""


def plain(shown: str) -> list[str]:
    """Return the lines with a word for what is another in every run; the widths of columns do not count."""
    for pattern, word in _VARIES:
        shown = re.sub(pattern, word, shown, flags=re.IGNORECASE)
    lines = (re.sub(r"(?<=\S) {2,}", "  ", line.rstrip()) for line in shown.splitlines())
    return [line for line in lines if line]


class Gpus(FakeDriver):
    """The driver of the session: it prepares what a claim was allocated, unless it is to refuse it once."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.folder, on_prepare=self._prepared)
        self.refuses: dict[str, str] = {}
        """What it answers the next time instead of preparing a claim, by the claim's name."""
        self._cluster = cluster

    async def starts(self) -> None:
        await self.serve()
        await self.register()
        await self.told(len(self.statuses) + 1)

    async def _prepared(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        return {one.uid: self._answer_for(one) for one in claims}

    def _answer_for(self, claim: ClaimName) -> PreparedClaim:
        if error := self.refuses.pop(claim.name, ""):
            return PreparedClaim(error=error)
        found: Json = self._cluster.registry.get(RESOURCE_CLAIMS, claim.namespace, claim.name)
        return PreparedClaim(
            tuple(
                PreparedDevice(
                    one["pool"],
                    one["device"],
                    (one["request"],),
                    (f"k8s.{self.name}/claim={claim.uid}-{one['device']}",),
                )
                for one in found["status"]["allocation"]["devices"]["results"]
            )
        )


@dataclass
class Session:
    """One play of the session."""

    cluster: Cluster
    kubectl: Kubectl
    driver: Gpus

    async def give(self, step: Step) -> list[str]:
        """Give a command; return what it showed otherwise than it was recorded."""
        if step.is_file:
            (self.kubectl.folder / step.words[0]).write_text(step.shown)
            return []
        await self._before(step)
        wanted = plain(step.shown)
        shown: list[str] = []
        for seconds in LOOKS_SECONDS if step.is_looking else (0,):
            await passes(seconds)
            if (shown := plain(await self._given(step))) == wanted:
                return []
        lines = difflib.unified_diff(wanted, shown, "recorded", "ours", lineterm="", n=0)
        return [f"{step.file} $ {step.command}\n" + "\n".join(lines)]

    async def _given(self, step: Step) -> str:
        names = self._generated(step)
        words = [names.get(word, word) for word in step.words]
        if "--raw" in words:  # plain HTTP has the token in the path
            words[-1] = f"/{TOKEN}{words[-1]}"
        shown = (await self._run(words)).replace(str(self.cluster.folder), ROOT)
        for recorded, ours in names.items():
            shown = shown.replace(ours, recorded)
        for pattern in _MORE_HERE:
            shown = re.sub(pattern, "", shown, flags=re.MULTILINE)
        return shown

    async def _run(self, words: Sequence[str]) -> str:
        """Run kubectl while the clock stands; it goes on only while a pod is waited for that is to end."""
        if words[0] != "delete":
            ran = await asyncio.to_thread(self.kubectl, *words)
            return ran.stdout + ran.stderr
        with self.kubectl.begun(*words) as process:
            while process.poll() is None:
                if self._ends_a_pod:
                    await passes(0.05)
                else:
                    await asyncio.to_thread(_wait_a_moment, process)
            return process.communicate()[0]

    @property
    def _ends_a_pod(self) -> bool:
        pods: list[Json] = list(self.cluster.registry.all(PODS))
        return any("deletionTimestamp" in one["metadata"] for one in pods)

    def _generated(self, step: Step) -> Mapping[str, str]:
        """Return our names of generated claims by the recorded ones."""
        claims: list[Json] = list(self.cluster.registry.all(RESOURCE_CLAIMS))
        made = {one["metadata"].get("generateName"): one["metadata"]["name"] for one in claims}
        return {
            found[0]: made[found[1]]
            for found in re.finditer(r"\b(pod[-\w]*-)\w{5}\b", f"{step.command}\n{step.shown}")
            if found[1] in made
        }

    # ── what happens between the commands ──

    @property
    def _has_slice(self) -> bool:
        return self.cluster.registry.find(RESOURCE_SLICES, "", SLICE) is not None

    async def _before(self, step: Step) -> None:
        match step.file[:2], step.command.split()[1:]:
            case "02", _ if not self._has_slice:
                await self.driver.starts()
                self.cluster.publish(SLICE, self.driver.name, DEVICES)
            case "03", ["get", "deviceclasses"]:  # those of what else ran in the recorded cluster
                for name in ("err.demo", "slow.demo"):
                    self.cluster.registry.create(DEVICE_CLASSES, "", {"metadata": {"name": name}, "spec": {}})
            case "07", ["apply", "-f", "pod-err.yaml"]:
                self.driver.refuses["small"] = "gpu-0 did not come out of reset"
            case "10", _:
                self.cluster.taint(SLICE, "gpu-2", TAINT)
            case "13", ["apply", "-f", "pod-late.yaml"]:
                await self.driver.stop()
            case "13", ["get", "pod", *_] if not self._has_slice:
                await self.driver.starts()


def _wait_a_moment(process: Popen[str]) -> None:
    with suppress(TimeoutExpired):
        process.wait(0.01)


async def differences(transcripts: Iterable[Path], place: Path) -> dict[str, tuple[int, list[str]]]:
    """Play transcripts in this order; return by file how many commands there are, and what differed.

    What the cluster needs of files is made in `place`.
    """
    results: dict[str, tuple[int, list[str]]] = {}
    async with running(place / "kubelet") as cluster, asyncio.TaskGroup() as tasks:
        server = ApiServer(
            cluster.registry, logs=no_logs, metrics=no_metrics, control=no_control, token=TOKEN
        )
        server.listen()
        serving = tasks.create_task(server.run())
        (place / "home").mkdir()
        session = Session(cluster, Kubectl(place / "home", server.kubeconfig), Gpus(cluster))
        try:
            for path in transcripts:
                steps = list(steps_of(path))
                found = [difference for step in steps for difference in await session.give(step)]
                results[path.name] = sum(not step.is_file for step in steps), found
        finally:
            await session.driver.stop()
            serving.cancel()
    return results
