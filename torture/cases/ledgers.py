"""The kubelet's books beside a naive model: random histories, and every short one of a small node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY, UNHEALTHY, ContainerResponse
from devplug.errors import AllocationError
from devplug.exchange import AdvertisedDevice
from devplug.kubelet import resources
from devplug.kubelet.allocation import Ledger, Need
from torture.catalogue import case

if TYPE_CHECKING:
    from torture.catalogue import Trial

RESOURCE: Final = "example.com/a"
PODS: Final = ("p0", "p1")
IDS: Final = ("a", "b", "c")
RESPONSE: Final = ContainerResponse()

OPERATIONS: Final = (
    *((verb, pod, count) for verb in ("allocate", "refuse") for pod in PODS for count in (1, 2)),
    *(("end", pod, 0) for pod in PODS),
    *(("ill", id_, 0) for id_ in IDS[:2]),
    *(("well", id_, 0) for id_ in IDS[:1]),
    ("lost", "", 0),
    ("restart", "", 0),
)
"""All that happens to the small node: 15 operations."""

DEPTH: Final = 4
HISTORY_LENGTH: Final = 40


class Small:
    """The real ledger of one resource, and beside it a dictionary of who holds what."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.held: dict[str, tuple[str, ...]] = {}
        self.health = dict.fromkeys(IDS, HEALTHY)
        self.is_lost = False
        self._list()

    def _list(self) -> None:
        listed = [AdvertisedDevice(id_, health) for id_, health in self.health.items()]
        self.ledger.update(RESOURCE, resources.listed(self.ledger.state(RESOURCE), listed))
        self.is_lost = False

    def do(self, verb: str, name: str, count: int) -> str:
        """Do one thing to both; return what does not hold then, or nothing."""
        if verb in {"allocate", "refuse"}:
            return self._allocate(name, count, is_refused=verb == "refuse") or self.fault()
        if verb == "end":
            self.held.pop(name, None)
            self.ledger.free_inactive([*self.held])
        elif verb in {"ill", "well"}:
            self.health[name] = HEALTHY if verb == "well" else UNHEALTHY
            self._list()
        elif verb == "lost":
            self.is_lost = True
            state = resources.disconnected(self.ledger.state(RESOURCE))
            self.ledger.update(RESOURCE, state)
        else:
            kept = self.ledger.assignments
            self.ledger = Ledger()
            self.ledger.restore(kept)
            self._list()
        return self.fault()

    def _allocate(self, pod: str, count: int, *, is_refused: bool) -> str:
        need = Need(pod, "c", RESOURCE, count)
        healthy = set() if self.is_lost else {id_ for id_ in IDS if self.health[id_] == HEALTHY}
        free = healthy - self._taken()
        mine = self.held.get(pod)
        possible = bool(healthy) and (
            len(free) >= count if mine is None else len(mine) == count and healthy.issuperset(mine)
        )
        self.ledger.begin_container(pod)
        steps = self.ledger.pick(need, was_running=False)
        try:
            next(steps)
            steps.send(())
        except StopIteration as chosen:
            picked: tuple[str, ...] = tuple(chosen.value)
        except AllocationError:
            self.ledger.release_unassigned()
            return "a pod is refused that could have devices" if possible else ""
        else:
            return "asked twice"
        if not possible:
            return f"{pod} gets {picked}, which should be refused"
        if not picked:
            return "" if mine is not None else f"{pod} gets nothing"
        if is_refused:
            self.ledger.release_unassigned()
            return ""
        if not free.issuperset(picked) or len(picked) != count:
            return f"I1: {pod} gets {picked} of {sorted(free)}"
        self.ledger.assign(need, picked, RESPONSE, compat=True)
        self.ledger.end_container(pod, "c", runs_to_its_end=False)
        self.held[pod] = picked
        return ""

    def _taken(self) -> set[str]:
        return {id_ for ids in self.held.values() for id_ in ids}

    def fault(self) -> str:
        """Return what does not hold between the ledger and the dictionary."""
        booked = {one.allocation.pod_uid: one.allocation.device_ids for one in self.ledger.assignments}
        if booked != self.held:
            return f"I12: the books have {booked}, held are {self.held}"
        ids = [id_ for held in booked.values() for id_ in held]
        if len(ids) != len(set(ids)):
            return f"I1: {booked}"
        if self.ledger.state(RESOURCE).available & self._taken():
            return "I1: what is held is available"
        if (self.ledger.state(RESOURCE).allocated or frozenset()) != self._taken():
            return f"marked {self.ledger.state(RESOURCE).allocated}, held {self._taken()}"
        return ""


@case(
    "ledger-histories",
    fault="X43",
    promise="After any history of pods, refusals, losses and restarts the books are those of a naive model",
    count=30_000,
    unit="histories",
    invariants="I1 I12",
    brief=True,
)
async def ledger_histories(trial: Trial) -> None:
    """Play random histories of forty operations."""
    for turn in trial.rounds():
        small = Small()
        done = []
        for _ in range(HISTORY_LENGTH):
            done.append(turn.random.choice(OPERATIONS))
            if why := small.do(*done[-1]):
                trial.broke(f"{why}: {done}", turn.number)
                break


@case(
    "ledger-every-history",
    fault="X43",
    promise="All 15^4 histories of four operations on two pods and three devices keep the books right",
    count=len(OPERATIONS) ** DEPTH,
    unit="histories",
    invariants="I1 I12",
)
async def ledger_every_history(trial: Trial) -> None:
    """Play every history, each by its number."""
    for turn in trial.rounds():
        small = Small()
        history = _history(turn.number)
        for operation in history:
            if why := small.do(*operation):
                trial.broke(f"{why}: {history}", turn.number)
                break


def _history(number: int) -> list[tuple[str, str, int]]:
    """Return one of all histories; a prime step makes also a part of the numbers go through all kinds."""
    index = number * 7919 % len(OPERATIONS) ** DEPTH
    history = []
    for _ in range(DEPTH):
        index, operation = divmod(index, len(OPERATIONS))
        history.append(OPERATIONS[operation])
    return history
