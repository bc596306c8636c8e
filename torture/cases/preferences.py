"""Preferences and topology: each question that can be asked gets a legal answer or none, never an error.

The questions are those of GetPreferredAllocation. With 36 NUMA nodes, or devices on nodes that no machine
has, hints come quickly or not at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import Device
from devplug.daemon.preference import Candidate, preferred
from devplug.devices import HEALTHY
from devplug.errors import AllocationError, InvalidRequestError, RemoteError
from devplug.kubelet.hints import hints_for
from devplug.kubelet.topology import nodes_of
from devplug.plugin.inventory import Inventory
from devplug.plugin.service import PluginService
from devplug.wire.deviceplugin import GET_PREFERRED_ALLOCATION
from devplug.wire.sockets import connected
from devplug.wire.values import AdvertisedDevice, PreferenceRequest
from torture.catalogue import Round, case
from torture.footprint import nothing_kept
from torture.testbed import RESOURCE, Fed, bed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial

AT_A_TIME: Final = 5_000
"""Questions of one round; most go to the pure chooser."""

OF_THE_SERVICE: Final = 1_000
OVER_THE_WIRE: Final = 20

SAME: Final = 20
"""How often the chooser is asked the same, with what it is told in another order each time."""

POLICIES: Final = ("packed", "spread", "leastShared", "aligned", "linked", "auto", "none")
IDS: Final = tuple(f"d{number}" for number in range(64))
MANY: Final = 100_000
"""How many devices are available in the largest question."""

ANSWER_SECONDS: Final = 5.0

HABITS: Final = ("ranks", "doubles", "invents", "stops early", "raises", "returns text")
NODES: Final = 36
ODD: Final = (-1, 36, 63, 64, 99, 1023, 2**31, 2**63 - 1, -(2**63))
HINT_SECONDS: Final = 0.1


# ── preferences ──


@case(
    "preferences",
    fault="X36",
    promise="Every question that a kubelet can ask gets a legal preference or none, whatever the author's "
    "code does; the others are refused",
    count=1_000_000,
    unit="questions",
    invariants="I3 I6 I11",
)
async def preferences(trial: Trial) -> None:
    """Ask the pure chooser, the service around an author's code that may do anything, and a socket."""
    inventory = Inventory(RESOURCE)
    await inventory.replace([Device(id_) for id_ in IDS])
    plugin, served = Ranking(), Ranking(*IDS)
    service = PluginService(plugin, inventory, lambda: None)
    try:
        async with bed(trial.folder, served):
            (path,) = trial.folder.glob("devplug-*.sock")
            async with connected(path) as peer:
                asking = Asking(trial, service, peer, (plugin, served))
                await asking.round(Round(-1, Random(trial.seed)))
                async with nothing_kept(trial):
                    for turn in trial.rounds(max(1, trial.count // AT_A_TIME)):
                        await asking.round(turn)
                        trial.done += AT_A_TIME - 1
                await asking.ask_of_many(inventory, min(MANY, trial.count))
    finally:
        service.close()
    for name, (count, seconds) in asking.spent.items():
        trial.figure(name, f"{count:,} in {seconds:.1f} s of a processor")


class Ranking(Fed):
    """A plugin whose `prefer` does what `habit` says."""

    habit: str = "ranks"

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> Iterable[Device]:
        """Rank well, badly, or not at all."""
        match self.habit:
            case "ranks":
                candidates = [Candidate(device.id, device.id) for device in available]
                must = [device.id for device in must_include]
                chosen = preferred("packed", candidates, must, size, all_devices=candidates)
                return [Device(id_) for id_ in chosen]
            case "doubles":
                return [*available, *available][::-1]
            case "invents":
                return [Device("nobody-has-it"), *available]
            case "stops early":
                return available[: size // 2]
            case "raises":
                raise RuntimeError("a fault of the author's")
            case _:
                return "no devices"  # type: ignore[return-value]  # as an author without a type checker


@dataclass(slots=True)
class Asking:
    """All who can be asked, and how much time each has spent on how many questions."""

    trial: Trial
    service: PluginService
    peer: Peer
    plugins: tuple[Ranking, ...]
    spent: dict[str, tuple[int, float]] = field(default_factory=dict)

    async def round(self, turn: Round) -> None:
        """Ask all of them, each as many questions as is its share."""
        started = time.process_time()
        count = AT_A_TIME - OF_THE_SERVICE - OVER_THE_WIRE
        for _ in range(count // SAME):
            self._ask_chooser(turn)
        started = self._note("pure chooser", count, started)
        for _ in range(OF_THE_SERVICE):
            await self._ask(turn, over_the_wire=False)
        started = self._note("service", OF_THE_SERVICE, started)
        for _ in range(OVER_THE_WIRE):
            await self._ask(turn, over_the_wire=True)
        self._note("socket", OVER_THE_WIRE, started)

    def _note(self, name: str, count: int, started: float) -> float:
        now = time.process_time()
        counted, seconds = self.spent.get(name, (0, 0.0))
        self.spent[name] = counted + count, seconds + now - started
        return now

    def _ask_chooser(self, turn: Round) -> None:
        """Ask which of some candidates go together: the answer must not depend on their order."""
        chance = turn.random
        candidates = [_candidate(chance, number) for number in range(chance.randint(0, 12))]
        ids = [one.id for one in candidates]
        must = chance.sample(ids, chance.randint(0, min(3, len(ids))))
        size = chance.choice((0, -1, len(ids), len(ids) + 5, chance.randint(0, 12)))
        policy = chance.choice(POLICIES)
        distances = {(one, other): chance.randint(10, 255) for one in range(4) for other in range(4)}
        first: list[str] | None = None
        for _ in range(SAME):
            chance.shuffle(candidates)
            chance.shuffle(must)
            chosen = preferred(
                policy, candidates, must, size, all_devices=candidates, numa_distances=distances
            )
            if wrong := _illegal(chosen, ids, must, size, exactly=min(max(0, size), len(ids))):
                self.trial.broke(f"I11: {policy}: {wrong}", turn.number)
            first = first or chosen
            text = f"I11: {policy} of {candidates} depends on their order"
            self.trial.check(chosen == first, text, turn.number)

    async def _ask(self, turn: Round, *, over_the_wire: bool) -> None:
        chance = turn.random
        for plugin in self.plugins:
            plugin.habit = chance.choice(HABITS)
        ids = chance.sample(IDS, chance.choice((0, 1, 2, 8, 64)))
        available = [*ids, *(f"x{number}" for number in range(chance.choice((0, 0, 0, 2))))]
        must = chance.sample(available, min(len(available), chance.choice((0, 0, 1, 3))))
        size = chance.choice((0, 1, len(ids), len(available) + 1, chance.randint(0, 64)))
        is_wrong = chance.random() < 0.2
        if is_wrong and chance.random() < 0.5:
            size = -chance.randint(1, 2**31)
        elif is_wrong:
            must.append(chance.choice(("elsewhere", "d64", "")))
        question = PreferenceRequest(tuple(available), tuple(must), size)
        try:
            if over_the_wire:
                call = self.peer.call(GET_PREFERRED_ALLOCATION, [question], timeout_seconds=ANSWER_SECONDS)
                (answer,) = await call
            else:
                (answer,) = await self.service.preferred_allocation([question])
        except (AllocationError, RemoteError) as error:
            status = error.status if isinstance(error, RemoteError) else ""
            is_right = is_wrong and (status == "InvalidArgument" or isinstance(error, InvalidRequestError))
            self.trial.check(is_right, f"I11: {question}: {error}", turn.number)
            return
        self.trial.check(not is_wrong, f"I11: {question} was answered with {answer}", turn.number)
        if answer and (wrong := _illegal(answer, available, {*must}.intersection(ids), size)):
            self.trial.broke(f"I11: {wrong}", turn.number)

    async def ask_of_many(self, inventory: Inventory, count: int) -> None:
        """Ask for a few of very many devices: the service, and the chooser by each policy."""
        ids = [f"d{number}" for number in range(count)]
        await inventory.replace([Device(id_) for id_ in ids])
        self.plugins[0].habit = "ranks"
        started = time.perf_counter()
        (answer,) = await self.service.preferred_allocation([PreferenceRequest(tuple(ids), (ids[7],), 5)])
        times = [time.perf_counter() - started]
        if answer and (wrong := _illegal(answer, ids, (ids[7],), 5)):
            self.trial.broke(f"I11: of {count:,}: {wrong}")
        candidates = [_candidate(Random(self.trial.seed), number) for number in range(count)]
        by_id = {one.id: one for one in candidates}
        for policy in POLICIES:
            must = candidates[count // 2].id
            started = time.perf_counter()
            chosen = preferred(policy, candidates, (must,), 5, all_devices=candidates)
            times.append(time.perf_counter() - started)
            if wrong := _illegal(chosen, by_id, (must,), 5, exactly=5):
                self.trial.broke(f"I11: {policy} of {count:,}: {wrong}")
        self.trial.times(f"some of {count:,} devices", times, p99_within=ANSWER_SECONDS)


def _candidate(chance: Random, number: int) -> Candidate:
    return Candidate(
        f"g{number // 3}::{number}",
        f"g{number // 3}",
        tuple(chance.sample(range(4), chance.choice((0, 1, 1, 1, 2)))),
        f"/sys/devices/pci0000:00/0000:00:0{number % 4}.0/0000:0{number % 8}:00.0",
        {f"g{chance.randint(0, 3)}": chance.randint(1, 12)} if chance.random() < 0.3 else {},
    )


def _illegal(
    chosen: Sequence[str],
    available: Collection[str],
    must: Collection[str],
    size: int,
    *,
    exactly: int | None = None,
) -> str:
    """Return what is wrong with an answer, or ""."""
    if len({*chosen}) != len(chosen):
        return f"{chosen} has an ID twice"
    if strangers := {*chosen}.difference(available):
        return f"{strangers} are not available"
    if len(chosen) > max(0, size) or (exactly is not None and len(chosen) != exactly):
        return f"{len(chosen)} for a size of {size}"
    if len(must) <= len(chosen) and not {*must}.issubset(chosen):
        return f"{chosen} is without some of {must}"
    return ""


# ── topology ──


@case(
    "topology-extremes",
    fault="X44",
    promise="On a machine of 36 NUMA nodes with devices on two, whatever nodes they name, hints come within "
    "100 ms and name only nodes that the machine has; with devices on most there are none, as quickly",
    count=5_000,
    unit="questions",
    invariants="I3 I6",
)
async def topology_extremes(trial: Trial) -> None:
    """Ask for hints for devices that name good, unknown, repeated and impossible nodes."""
    times: list[float] = []
    async with nothing_kept(trial):
        for turn in trial.rounds():
            chance = turn.random
            # On more nodes than anybody can go through the sets of, now and then.
            is_wide = chance.random() < 0.1
            good = chance.sample(range(NODES), chance.randint(20, NODES) if is_wide else 2)
            devices = {}
            for number in range(chance.randint(1, chance.choice((3, 64)))):
                nodes = [
                    chance.choice((*good, *good, chance.choice(ODD))) for _ in range(chance.randint(0, 4))
                ]
                nodes = good if is_wide else nodes
                devices[f"d{number}"] = AdvertisedDevice(f"d{number}", HEALTHY, tuple(nodes) or None)
            required = chance.randint(1, len(devices))
            started = time.process_time()
            hints = hints_for(devices, [*devices], [], required, range(NODES), compat=False)
            times.append(time.process_time() - started)
            trial.check((hints is None) == is_wide, f"I6: {hints} of {len(good)} nodes", turn.number)
            for hint in hints or ():
                nodes_of_hint = nodes_of(hint.mask or 0)
                is_of_machine = nodes_of_hint and {*nodes_of_hint} <= {*good}
                trial.check(is_of_machine, f"I6: {nodes_of_hint} of devices on {good}", turn.number)
                fitting = sum(
                    bool({*nodes_of_hint}.intersection(one.numa_nodes or ())) for one in devices.values()
                )
                trial.check(fitting >= required, f"I6: {fitting} of {required} devices", turn.number)
    trial.times("one question", times, p99_within=HINT_SECONDS)
