"""The calls by which a kubelet has claims prepared and unprepared, and asks for the health of their devices.

Work on a claim goes on when its call is given up: the kubelet asks again, and finds it done. One claim is
worked on by one task at a time, different ones side by side.

1. What may pass (the API server, a device that is settling) is waited for inside the call, because a refused
   prepare costs the pod a minute (dra.md D18). What cannot pass is refused at once.
2. A device that another claim still uses is taken over only if the API server says that this one has released
   it: the kubelet may unprepare late (D28). The old use is ended first, and its unprepare then does nothing.
   A claim that is deleted while this kubelet has it prepared has released nothing: its containers may run.
3. A release is called before it is noted that a use is over. So it is called once, unless this process ends
   between the two, or the machine just after: then once more, as a device that was not cleaned up is worse
   than one cleaned twice.
4. A container may have several requests of a claim, and several claims of its pod. So the uses of one pod
   begin in the order in which the kubelet names the claims, each with an `{index}` that no other has, and a
   file that would put a second device at a container path of another one is refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from devplug.backoff import backoff_seconds
from devplug.driver.claim_spec import answer, claim_spec, clashes, variables_of_two
from devplug.driver.claims import (
    ClaimRefusedError,
    ClaimUse,
    DeviceUse,
    allocated_devices,
    asked,
    by_resource,
    check_names,
    facts_of,
    for_pods,
    in_the_way,
    is_for_one_pod,
    is_uid,
    is_use_of,
    last_used,
    meets,
    numbered,
    reserved_pods,
    still_holds,
    to_clean,
)
from devplug.driver.device_entries import device_name
from devplug.driver.offer import ClaimRequest, with_shares
from devplug.driver.parameters import configured, merged
from devplug.driver.status import ClaimCounters
from devplug.errors import DevplugError, IncidentError, NotReadyError, one_line, quoted
from devplug.holds.held_device import NotCleanedError
from devplug.holds.ownership import Whereabouts
from devplug.k8s.errors import ClusterError, NotThereError, RefusedError
from devplug.k8s.objects import text
from devplug.linux.notifier import within
from devplug.logs import AUDIT
from devplug.wire.dra import PREPARE, UNPREPARE, PreparedClaim
from devplug.wire.sockets import unary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from devplug.cdi.spec import CdiOwner, CdiSpec
    from devplug.devices import ContainerResponse
    from devplug.dra.taints import Toleration
    from devplug.driver.claims import AllocatedDevice
    from devplug.driver.offer import ClaimReader, DriverResource, Offer
    from devplug.driver.parameters import ParameterDecoder
    from devplug.driver.prepared_claims import PreparedClaims
    from devplug.k8s.objects import Object
    from devplug.wire.dra import ClaimName
    from devplug.wire.sockets import Binding

logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

Result = TypeVar("Result")
Answer: TypeAlias = "tuple[ContainerResponse, CdiOwner]"
"""What containers get of a device, and who owns its nodes there."""

PATIENCE_SECONDS: Final = 20.0
"""How long a call waits for what may pass; the kubelet gives it up after 45 s (dra.md D17)."""

AGAIN_SECONDS: Final = 0.25

CLEAN_AGAIN_SECONDS: Final = 10.0
"""How often the clean-up of released devices is tried again: another resource may find them, or use them no
more."""

CLEAN_AGAIN_MOST_SECONDS: Final = 600.0
"""The longest wait after clean-ups that failed."""

TEXT_LIMIT_BYTES: Final = 800
"""Longest error: the event that shows it takes 1024 bytes."""


class ClaimService:
    """The service of a driver for claims; lives as long as the driver. Its work runs in `tasks`.

    `whereabouts` returns what is known of a device that is not offered by a name in slices.
    """

    def __init__(
        self,
        driver: str,
        node_name: str,
        store: PreparedClaims,
        resources: Mapping[str, DriverResource],
        offer: Offer,
        reader: ClaimReader,
        decode: ParameterDecoder,
        tasks: asyncio.TaskGroup,
        counters: ClaimCounters | None = None,
        owner: str = "",
        whereabouts: Callable[[str], Whereabouts] = lambda _: Whereabouts(),
    ) -> None:
        self._driver = driver
        self._node_name = node_name
        self._store = store
        self._resources = resources
        self._offer = offer
        self._reader = reader
        self._decode = decode
        self._tasks = tasks
        self._counters = counters or ClaimCounters()
        self._owner = owner
        self._whereabouts = whereabouts
        self._works = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ending: set[str] = set()
        """UIDs of claims whose use is being ended."""

    def bindings(self) -> Iterator[Binding]:
        """Yield the methods that a listener has to serve, of both versions."""
        for version in PREPARE:
            yield unary(PREPARE[version], self._counters.noting(version, self.prepare))
            yield unary(UNPREPARE[version], self._counters.noting(version, self.unprepare))

    async def until_idle(self) -> None:
        """Wait until all work on claims has ended."""
        await self._is_idle.wait()

    # ── calls ──

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        """Answer NodePrepareResources: for each claim its devices, or why there are none."""
        works: dict[str, asyncio.Task[PreparedClaim]] = {}
        before: asyncio.Event | None = None
        for claim in claims:
            begun = asyncio.Event()
            works[claim.uid] = self._start(partial(self._prepared, before=before, begun=begun), claim)
            before = begun
        return {uid: await asyncio.shield(work) for uid, work in works.items()}

    async def unprepare(self, claims: Sequence[ClaimName]) -> Mapping[str, str]:
        """Answer NodeUnprepareResources: for each claim nothing, or why it is still in use."""
        works = {claim.uid: self._start(self._unprepared, claim) for claim in claims}
        return {uid: await asyncio.shield(work) for uid, work in works.items()}

    def _start(
        self, work: Callable[[ClaimName], Awaitable[Result]], claim: ClaimName
    ) -> asyncio.Task[Result]:
        return self._tasks.create_task(
            self._counted(work, claim), name=f"claim {claim.namespace}/{claim.name}"
        )

    async def _counted(self, work: Callable[[ClaimName], Awaitable[Result]], claim: ClaimName) -> Result:
        self._works += 1
        self._is_idle.clear()
        try:
            return await work(claim)
        finally:
            self._works -= 1
            if not self._works:
                self._is_idle.set()

    async def _prepared(
        self, claim: ClaimName, *, before: asyncio.Event | None, begun: asyncio.Event
    ) -> PreparedClaim:
        """Prepare a claim after the use of the claim `before` it in the call has begun or failed."""
        started = time.monotonic()
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        facts = {"claim": f"{claim.namespace}/{claim.name}", "claim_uid": claim.uid}
        try:
            check_names(claim)
            if before is not None:
                await within(PATIENCE_SECONDS, before.wait())
            async with self._store.alone(claim.uid):
                self._store.asked_for.add(claim.uid)
                use = await self._prepare(claim, deadline, begun)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the kubelet gets an answer
            self._counters.count_prepare(error, time.monotonic() - started)
            text = _text_of(error, facts)
            audit.warning("not prepared", extra={**facts, "reason": text})
            return PreparedClaim(error=text)
        finally:
            begun.set()
        seconds = time.monotonic() - started
        self._counters.count_prepare(None, seconds)
        audit.info("prepared", extra={**facts_of(use), "milliseconds": round(1000 * seconds, 1)})
        return answer(use, self._node_name)

    async def _unprepared(self, claim: ClaimName) -> str:
        started = time.monotonic()
        facts = {"claim": f"{claim.namespace}/{claim.name}", "claim_uid": claim.uid}
        try:
            if is_uid(claim.uid):  # no other was ever prepared
                async with self._store.alone(claim.uid), self._store.locked():
                    use = self._store.claims.get(claim.uid)
                    if use is not None:
                        await self.end(use)
        except Exception as error:  # noqa: BLE001 -- as above
            self._counters.count_unprepare(error, time.monotonic() - started)
            text = _text_of(error, facts)
            audit.warning("not unprepared", extra={**facts, "reason": text})
            return text
        self._counters.count_unprepare(None, time.monotonic() - started)
        return ""

    # ── prepare ──

    async def _prepare(self, claim: ClaimName, deadline: float, begun: asyncio.Event) -> ClaimUse:
        found = await self._found(claim.namespace, claim.name, deadline)
        allocated = allocated_devices(found, claim, self._driver, self._node_name)
        async with self._store.locked():
            await self._store.restore(claim.uid)
            old = self._store.claims.get(claim.uid)
            if old is not None and is_use_of(old, allocated) and self._store.is_prepared(old):
                await self._check_new_pods(old, found, deadline)
                return old
        # Not before: what was once prepared stays so, even if a later release of ours is stricter.
        configs = [merged(one.parameters, self._decode) for one in allocated]
        # Not inside that block: it may take long, and another instance may have to work meanwhile.
        devices = await self._devices(allocated, deadline)
        use = ClaimUse(claim.namespace, claim.name, claim.uid, devices, int(time.time()), owner=self._owner)
        use = replace(for_pods(use, reserved_pods(found)), is_for_one_pod=is_for_one_pod(found))
        shared = await self._shared_claims(use, deadline)
        async with self._store.locked():
            use = with_shares(use, self._offer.devices, self._store.claims)
            old = self._store.claims.get(claim.uid)
            if old is not None and old.uses_as(use):
                if self._store.is_prepared(old):
                    return old
                use = replace(use, since=old.since)
            elif old is not None:  # the claim was released since, and allocated again
                await self.end(old)
            if (left := self._store.released.get(claim.uid)) is not None:
                await self.end(left)
                if claim.uid in self._store.released:
                    raise ClaimRefusedError(
                        f"devices of ResourceClaim {left} are still to be cleaned up after its last use"
                    )
            self._store.seen[use.uid] = self._offer.devices_of(use.devices)
            use = await self._begin(use, shared, deadline)
            begun.set()
            tolerations = {one.request: one.tolerations for one in allocated}
            answers = await self._answers(use, tolerations, deadline)
            given = [configured(one, config) for (one, _), config in zip(answers, configs, strict=True)]
            async with self._store.alone(f"paths in {use.namespace}"):
                others = self._specs_beside(use, shared)
                spec, named = claim_spec(self._driver, use, given, [owner for _, owner in answers], others)
                if spec is not None and (names := variables_of_two([spec, *(one for _, one in others)])):
                    logger.info(
                        "requests that a container may have together give it other values of a variable; it "
                        "gets the last one, so write a name with {index}",
                        extra={**facts_of(use), "variables": names},
                    )
                return await self._store.publish(named, spec)

    async def _shared_claims(self, use: ClaimUse, deadline: float) -> Mapping[str, ClaimUse]:
        """Return the claims in use that further pods may come to use, by UID, with their pods of now.

        The kubelet has a claim that is prepared used by another pod without a call (dra.md D23).
        """
        found = {}
        for other in list(self._store.claims.values()):
            if other.namespace == use.namespace and other.uid != use.uid and not other.is_for_one_pod:
                now = await self._found(other.namespace, other.name, deadline)
                pods = reserved_pods(now) if text(now, "metadata", "uid") == other.uid else ()
                found[other.uid] = for_pods(other, pods)
        return found

    async def _check_new_pods(self, use: ClaimUse, found: Object | None, deadline: float) -> None:
        """Raise `ClaimRefusedError` for a prepared claim whose new pods have other claims with its paths."""
        use, before = for_pods(use, reserved_pods(found)), set(use.pod_uids)
        if not before.issuperset(use.pod_uids) and (spec := self._store.spec_of(use.uid)) is not None:
            shared = await self._shared_claims(use, deadline)
            if wrong := [*clashes(spec, self._specs_beside(use, shared))]:
                raise ClaimRefusedError("; ".join(wrong))

    def _meeting(self, use: ClaimUse, shared: Mapping[str, ClaimUse]) -> list[ClaimUse]:
        """Return the claims in use of which a container may have devices besides those of a use."""
        others = [(one, shared.get(one.uid, one)) for one in self._store.claims.values()]
        return [one for one, now in others if meets(use, now)]

    def _specs_beside(self, use: ClaimUse, shared: Mapping[str, ClaimUse]) -> list[tuple[str, CdiSpec]]:
        """Return the specs of these claims, with their names."""
        specs = [(str(one), self._store.spec_of(one.uid)) for one in self._meeting(use, shared)]
        return [(name, spec) for name, spec in specs if spec is not None]

    async def _found(self, namespace: str, name: str, deadline: float) -> Object | None:
        """Return a claim's object, None if there is none; wait for the API server until the deadline."""

        async def attempt() -> Object | None:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._reader.get_claim(namespace, name)
            except NotThereError:
                return None
            except TimeoutError:
                raise ClusterError("the API server gives no answer") from None
            except RefusedError as error:
                raise ClaimRefusedError(str(error)) from error

        return await self._patient(attempt, ClusterError, deadline)

    async def _patient(
        self, attempt: Callable[[], Awaitable[Result]], passing: type[DevplugError], deadline: float
    ) -> Result:
        """Return what an attempt returns, as soon as it raises nothing that may pass, or at the deadline."""
        while True:
            change = self._offer.changed.next
            try:
                return await attempt()
            except passing as error:
                failure = error
            left_seconds = deadline - asyncio.get_running_loop().time()
            asked_seconds = min(getattr(failure, "retry_after_seconds", 0.0), left_seconds)
            await within(max(AGAIN_SECONDS, asked_seconds), change.wait())
            if asyncio.get_running_loop().time() >= deadline:
                raise failure

    async def _devices(self, allocated: Sequence[AllocatedDevice], deadline: float) -> tuple[DeviceUse, ...]:
        """Return the uses of allocated devices; wait for those that are not there."""

        async def attempt() -> tuple[DeviceUse, ...]:
            return tuple(map(self._device, allocated))

        return await self._patient(attempt, NotReadyError, deadline)

    def _device(self, one: AllocatedDevice) -> DeviceUse:
        """Return the use of an allocated device; an edit may have given it another name since."""
        found, there = self._offer.devices.get(one.name), Whereabouts()
        if found is None:
            there = self._whereabouts(one.name)
        if there.offered_as is not None:
            found = self._offer.devices.get(device_name(*there.offered_as))
            if found is not None and found.device.share_of:
                found = None  # which share it is, the former name does not tell
        if found is None and there.reason:
            raise NotReadyError(
                f"device {quoted(one.name)} is {there.reason}; delete the pod and its claim to get another "
                "one"
            )
        if found is None:
            raise NotReadyError(
                f"device {quoted(one.name)} is not on {self._node_name} any more; plug it in again, or "
                "delete the pod and its claim to get another one"
            )
        return DeviceUse(
            one.request, one.name, found.resource_name, found.device.id, one.share_id, one.has_admin_access
        )

    async def _begin(self, use: ClaimUse, shared: Mapping[str, ClaimUse], deadline: float) -> ClaimUse:
        """Let a use begin, once no other claim has a device in a way that keeps this one out; return it."""
        store = self._store
        tried: set[str] = set()
        while True:
            use = with_shares(use, self._offer.devices, store.claims)
            waiting = [one for uid, one in store.released.items() if uid not in tried]
            if waiting and (left := to_clean(self._with_uses(use), waiting)) is not None:
                tried.add(left.uid)
                async with store.alone(left.uid):
                    if left.uid in store.released:
                        await self.end(store.released[left.uid])
                continue
            if (other := in_the_way(use, store.claims, self._ending)) is None:
                use = numbered(self._with_uses(use), self._meeting(use, shared))
                await store.begin(use)
                self._offer.changed.notify()
                return use
            async with self._store.alone(other.uid):
                if in_the_way(use, store.claims, self._ending) is other:
                    await self._take_over(use, other, deadline)

    def _with_uses(self, use: ClaimUse) -> ClaimUse:
        """Return a use with what containers get of each device, as far as its resource tells."""
        found = {
            (name, device_id): one
            for name, ids in by_resource(use.devices).items()
            if name in self._resources
            for device_id, one in self._resources[name].uses(ids).items()
        }
        devices = [replace(one, use=found.get((one.resource_name, one.device_id))) for one in use.devices]
        return replace(use, devices=tuple(devices))

    async def _take_over(self, use: ClaimUse, other: ClaimUse, deadline: float) -> None:
        """End the use of a claim that has released its devices; raises `ClaimRefusedError` if it has not."""
        found = await self._found(other.namespace, other.name, deadline)
        disputed = [one for one in other.devices if any(map(one.excludes, use.devices))]
        is_gone = text(found, "metadata", "uid") != other.uid
        if is_gone and (other.uid in self._store.asked_for or self._store.may_be_in_use(other)):
            # Its finalizer was removed by hand, or its pod by force: the containers may still run.
            raise ClaimRefusedError(
                f"ResourceClaim {other} is deleted, but its pod may still run here with device "
                f"{quoted((disputed or other.devices)[0].name)}; the device is free once the kubelet "
                "unprepares the claim"
            )
        for device in disputed:
            if still_holds(found, other.uid, self._driver, self._node_name, device.name):
                raise ClaimRefusedError(
                    f"device {quoted(device.name)} is allocated to ResourceClaim {other}, too; delete one of "
                    "the two claims and its pods"
                )
        await self.end(other)

    async def _answers(
        self, use: ClaimUse, tolerations: Mapping[str, Sequence[Toleration]], deadline: float
    ) -> Sequence[Answer]:
        """Have the resources prepare the devices of a claim; return their answers, device by device.

        `tolerations` are by the name of the request.
        """

        async def prepared(name: str, requests: Mapping[str, Sequence[str]]) -> Sequence[Sequence[Answer]]:
            first = {(one.resource_name, one.request): one.first_index for one in use.devices}
            asked_for = [
                ClaimRequest(tuple(ids), tuple(tolerations[request]), first[name, request])
                for request, ids in requests.items()
            ]
            attempt = partial(self._answered, name, asked_for)
            async with asyncio.timeout_at(deadline + PATIENCE_SECONDS):
                return await self._patient(attempt, NotReadyError, deadline)

        return await asked(use, prepared)

    async def _answered(self, name: str, requests: Sequence[ClaimRequest]) -> Sequence[Sequence[Answer]]:
        if (resource := await self._resource(name)) is None:
            raise ClaimRefusedError(f"{name} is not served by {self._driver} any more")
        responses = await resource.prepare(requests)
        return [[(one, resource.node_owner) for one in some] for some in responses]

    async def _resource(self, name: str) -> DriverResource | None:
        """Return a resource; None if there is none. Raises `NotReadyError` while it is being replaced."""
        found = self._resources.get(name)
        if found is None and any(one.resource_name == name for one in self._offer.devices.values()):
            raise NotReadyError(f"{name} was changed and has listed no devices yet; look at the driver's log")
        return found

    # ── the end of a use ──

    async def end(self, use: ClaimUse) -> None:
        """End a use; the uses of one device's shares one by one, so that the last one sees that it is."""
        async with AsyncExitStack() as alone:
            for name in sorted({device.name for device in use.devices if device.share_id}):
                await alone.enter_async_context(self._store.alone(f"shares of {name}"))
            await self._end_alone(use)

    async def _end_alone(self, use: ClaimUse) -> None:
        """End a use: first no container can start with its devices, then they are released."""
        self._ending.add(use.uid)
        try:
            self._store.unpublish(use.uid)
            left: list[DeviceUse] = []
            failures: list[Exception] = []
            cleaned: list[DeviceUse] = []
            is_again = use.is_released
            used = last_used(use, self._store.claims, self._ending)
            for name in by_resource(used):
                devices = [one for one in used if one.resource_name == name]
                try:
                    await self._release(name, devices, is_again=is_again)
                    cleaned += devices
                except NotCleanedError as error:
                    left += (one for one in devices if one.device_id in error.device_ids)
                    cleaned += (one for one in devices if one.device_id not in error.device_ids)
                except Exception as error:  # noqa: BLE001 -- raised below, after all releases
                    failures.append(error)
                    left += (one for one in use.devices if one.resource_name == name)
            if failures and not is_again:
                await self._store.begin(replace(use, devices=tuple(left), boot_id=""))
            elif left:
                await self._store.leave(replace(use, devices=tuple(left)))
            else:
                await self._store.end(use.uid)
            await self._note_cleaned(cleaned)
            if failures:
                raise failures[0]
        finally:
            self._ending.discard(use.uid)
        if not (is_again and left):
            self._offer.changed.notify()
        if not is_again:
            audit.info("unprepared", extra=facts_of(use))

    async def _note_cleaned(self, devices: Sequence[DeviceUse]) -> None:
        """Note that devices are clean, whatever claim had them before."""
        for use in list(self._store.released.values()):
            left = [one for one in use.devices if not any(map(one.is_of_hardware, devices))]
            if not left:
                await self._store.end(use.uid)
            elif len(left) < len(use.devices):
                await self._store.leave(replace(use, devices=tuple(left)))

    async def _release(self, resource_name: str, devices: Sequence[DeviceUse], *, is_again: bool) -> None:
        """Have the resource clean up devices; raises `NotCleanedError` for those that it cannot clean now."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        resource = await self._patient(partial(self._resource, resource_name), NotReadyError, deadline)
        if resource is not None:
            await resource.release(by_resource(devices)[resource_name], is_again=is_again)
        elif dirty := [one.device_id for one in devices if one.use is not None and one.use.is_dirty]:
            raise NotCleanedError(dirty)

    async def clean_up_released(self) -> None:
        """Clean up devices that could not be cleaned when their claim ended, until cancelled.

        They may have been unplugged then.
        """
        failures: dict[str, int] = {}
        while True:
            change = self._offer.changed.next
            failures = {uid: count for uid, count in failures.items() if uid in self._store.released}
            for uid in list(self._store.released):
                try:
                    async with self._store.alone(uid), self._store.locked():
                        if (use := self._store.released.get(uid)) is not None:
                            await self.end(use)
                except (DevplugError, TimeoutError) as error:
                    failures[uid] = failures.get(uid, 0) + 1
                    logger.warning(
                        "devices of a claim that has ended are not cleaned up; tried again",
                        extra={"claim_uid": uid, "reason": str(error)},
                    )
            tries = max(failures.values(), default=0)
            if tries:
                await asyncio.sleep(backoff_seconds(tries, CLEAN_AGAIN_SECONDS, CLEAN_AGAIN_MOST_SECONDS))
            else:
                await within(CLEAN_AGAIN_SECONDS if self._store.released else None, change.wait())


def _text_of(error: Exception, facts: Mapping[str, str]) -> str:
    """Return what the kubelet is told of an error; the log has the rest of one that is a bug."""
    if isinstance(error, TimeoutError):
        return f"the devices were not prepared in {2 * PATIENCE_SECONDS:g}s; look at the log of the driver"
    if not isinstance(error, DevplugError):
        incident = IncidentError(secrets.token_hex(3))
        logger.error("work on a claim failed", extra={**facts, "incident": incident.incident}, exc_info=error)
        error = incident
    return one_line(str(error), TEXT_LIMIT_BYTES)
