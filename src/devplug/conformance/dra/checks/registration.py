"""Registration of a DRA driver: its sockets, GetInfo, versions, NotifyRegistrationStatus."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.conformance.dra.scripted_kubelet import DRIVER_TYPE, INFO_SECONDS
from devplug.conformance.runner import ARRIVAL
from devplug.conformance.verdicts import MUST, NOTE, SHOULD, FailedError, SkippedError, check
from devplug.errors import RemoteError, quoted
from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.dra import PREPARE, UNPREPARE
from devplug.wire.pluginregistration import GET_INFO
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from devplug.conformance.dra.scripted_kubelet import Registration
    from devplug.conformance.dra.testbed import DriverBed
    from devplug.wire.dra import PreparedClaim
    from devplug.wire.values import PluginInfo

_NAME_LIMIT: Final = 63
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_ASKED: Final = 3


def name_fault(name: str) -> str:
    """Return what keeps `name` from being a driver's; empty if nothing does (dra.md D43)."""
    if not name:
        return "is empty"
    if len(name) > _NAME_LIMIT:
        return f"has {len(name)} characters, {_NAME_LIMIT} are allowed"
    return "" if _SUBDOMAIN.fullmatch(name) else "is no DNS subdomain"


def _first(bed: DriverBed) -> Registration:
    if not bed.kubelet.registrations:
        raise SkippedError("no registration socket was found (DRA01)")
    told = [one for one in bed.kubelet.registrations if one.info is not None]
    return (told or bed.kubelet.registrations)[0]


def _info(bed: DriverBed) -> PluginInfo:
    info = _first(bed).info
    if info is None:
        raise SkippedError("GetInfo is not answered (DRA02)")
    return info


@check(
    "DRA01",
    MUST,
    "A driver makes a registration socket in plugins_registry.",
    why="the kubelet finds drivers by these sockets, and calls nobody else",
    change="listen in <kubelet>/plugins_registry, by convention at <driver name>-reg.sock",
    source="pkg/kubelet/pluginmanager/pluginwatcher; kubeletplugin/draplugin.go",
    lane=ARRIVAL,
)
async def makes_a_registration_socket(bed: DriverBed) -> str:
    """Start the driver, and look for sockets in `plugins_registry`."""
    if not bed.kubelet.registrations:
        words = bed.program.last_words()
        if (code := bed.program.exit_code) is not None:
            raise FailedError(f"the driver ended with {code} before it made one: {words}")
        raise FailedError(
            f"there is none after {bed.times.start_seconds:g} s; the driver last printed: {words}"
        )
    first = bed.kubelet.registrations[0]
    return f"{first.path.name}, {1000 * (first.found_at - bed.program.started_at):.0f} ms after its start"


@check(
    "DRA02",
    MUST,
    "GetInfo is answered within a second.",
    why="the kubelet gives up after 1 s, and the driver is not registered",
    change="answer from a constant, and serve the registration socket as soon as it is there",
    source="pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go (1 s)",
    lane=ARRIVAL,
)
async def answers_get_info(bed: DriverBed) -> str:
    """Dial until the socket accepts connections, call GetInfo, and take the time of that call."""
    first = _first(bed)
    if first.info_seconds is None:
        raise FailedError(f"GetInfo is answered with {first.failure or 'nothing'}")
    if first.info_seconds > max(INFO_SECONDS, bed.times.options_limit_seconds):
        raise FailedError(f"the answer took {first.info_seconds:.1f} s")
    return f"{1000 * first.info_seconds:.0f} ms"


@check(
    "DRA03",
    MUST,
    "The type in GetInfo is DRAPlugin.",
    why="the kubelet has no handler for any other, or that of device plugins or CSI drivers",
    change='set `type` to "DRAPlugin"',
    source="pkg/kubelet/pluginmanager/pluginwatcher; kubeletplugin/draplugin.go",
    lane=ARRIVAL,
)
async def has_the_type(bed: DriverBed) -> None:
    """Look at the first GetInfo."""
    if (type_ := _info(bed).type) != DRIVER_TYPE:
        raise FailedError(f"the type is {quoted(type_)}")


@check(
    "DRA04",
    MUST,
    "The driver's name is a DNS subdomain of at most 63 characters.",
    why="the kubelet registers any name, but no ResourceSlice and no claim can have a wrong one",
    change="take a domain of your own, as in gpu.example.com",
    source="pkg/apis/resource/validation/validation.go (validateDriverName)",
    lane=ARRIVAL,
)
async def has_a_valid_name(bed: DriverBed) -> str:
    """Compare the name in GetInfo with the rule that the API server has for slices."""
    name = _info(bed).name
    if fault := name_fault(name):
        raise FailedError(f"the name {quoted(name)} {fault}")
    return name


@check(
    "DRA05",
    MUST,
    "The endpoint is the absolute path of a socket, and short enough for one; or it is empty.",
    why="the kubelet registers any endpoint, and every prepare fails later",
    change="send the absolute path of the service socket as the kubelet sees it, of at most 107 bytes",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (nothing is checked); unix(7)",
    lane=ARRIVAL,
)
async def has_an_absolute_endpoint(bed: DriverBed) -> str:
    """Look at the endpoint in the first GetInfo; an empty one means the registration socket."""
    endpoint = _info(bed).endpoint or str(_first(bed).path)
    if not endpoint.startswith("/"):
        raise FailedError(f"the endpoint is {quoted(endpoint)}")
    if (length := len(os.fsencode(endpoint))) > SOCKET_PATH_LIMIT_BYTES:
        raise FailedError(f"the endpoint has {length} bytes, a socket's path has {SOCKET_PATH_LIMIT_BYTES}")
    return endpoint


@check(
    "DRA06",
    MUST,
    "A version that kubelets know is announced: v1.DRAPlugin or v1beta1.DRAPlugin.",
    why="the kubelet refuses the registration",
    change="announce the names of services without the package, and not those on the wire or of releases",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (validateSupportedServices)",
    lane=ARRIVAL,
)
async def announces_a_known_version(bed: DriverBed) -> str:
    """Look at supported_versions in the first GetInfo."""
    versions = _info(bed).supported_versions
    if not any(word in PREPARE for word in versions):
        raise FailedError(f"supported_versions is {', '.join(map(quoted, versions)) or 'empty'}")
    return ", ".join(versions)


@check(
    "DRA07",
    SHOULD,
    "v1.DRAPlugin is announced before v1beta1.DRAPlugin.",
    why="the kubelet takes the first that it knows, and v1beta1 has no share IDs",
    change="order supported_versions from the newest to the oldest",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go",
    lane=ARRIVAL,
)
async def announces_the_newest_first(bed: DriverBed) -> None:
    """Look at the order of supported_versions."""
    known = [word for word in _info(bed).supported_versions if word in PREPARE]
    if not known:
        raise SkippedError("no known version is announced (DRA06)")
    if "v1.DRAPlugin" in known[1:]:
        raise FailedError(f"the order is {', '.join(known)}")


@check(
    "DRA08",
    MUST,
    "The endpoint accepts connections within a second after GetInfo named it.",
    why="a prepare that comes before costs its pod a minute: the kubelet does not try again sooner",
    change="listen at the service socket before the registration socket is made",
    source="pkg/kubelet/kuberuntime/kuberuntime_manager.go (SyncPod returns without an error)",
    lane=ARRIVAL,
)
async def serves_before_it_registers(bed: DriverBed) -> None:
    """Dial the endpoint after the first answer of GetInfo, again and again for a second."""
    first = _first(bed)
    if not _first(bed).endpoint.is_absolute():
        raise SkippedError("the endpoint is no path (DRA05)")
    if first.info and (first.info.type != DRIVER_TYPE or not first.version):
        raise SkippedError("the registration is refused (DRA03, DRA06)")
    if first.first_dial_error:
        raise FailedError(f"the dial ended with {first.first_dial_error}")


@check(
    "DRA09",
    MUST,
    "Every announced version is served.",
    why="a kubelet of another release takes another of them, and each of its calls fails",
    change="register the service of each version that supported_versions names",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin.go",
    lane=ARRIVAL,
)
async def serves_what_it_announces(bed: DriverBed) -> str:
    """Call NodePrepareResources and NodeUnprepareResources of each with no claims."""
    info = _info(bed)
    known = [word for word in info.supported_versions if word in PREPARE]
    if not known or not _first(bed).endpoint.is_absolute() or _first(bed).first_dial_error:
        raise SkippedError("there is nothing to call (DRA05, DRA06, DRA08)")
    async with connected(_first(bed).endpoint) as peer:
        for word in known:
            try:
                await peer.call(PREPARE[word], (), timeout_seconds=bed.times.claim_limit_seconds)
                await peer.call(UNPREPARE[word], (), timeout_seconds=bed.times.claim_limit_seconds)
            except RemoteError as error:
                raise FailedError(f"a call of {word} with no claims is answered with {error}") from error
    return ", ".join(known)


@check(
    "DRA10",
    MUST,
    "NotifyRegistrationStatus is answered without an error.",
    why="the kubelet takes the registration back and begins again after a backoff; no claim is prepared",
    change="answer it, whatever it says; log a refusal",
    source="pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go",
    lane=ARRIVAL,
)
async def takes_the_status(bed: DriverBed) -> None:
    """Tell the driver that it is registered, and look at the answer."""
    first = _first(bed)
    _info(bed)
    if first.notify_error:
        raise FailedError(f"the answer is {first.notify_error}")


@check(
    "DRA11",
    SHOULD,
    "GetInfo says the same each time.",
    why="every restart of the kubelet asks again, and drops what is not there any more",
    change="answer the same type, name, endpoint and versions each time",
    source="pkg/kubelet/pluginmanager (asked at every registration)",
    lane="claims",
)
async def says_the_same_again(bed: DriverBed) -> None:
    """Ask three times more and compare the answers."""
    one = bed.registration
    async with connected(one.path) as peer:
        for _ in range(_ASKED):
            info = await peer.call(GET_INFO, None, timeout_seconds=bed.times.answer_seconds)
            if info != one.info:
                raise FailedError(f"first it was {one.info}, then {info}")


@check(
    "DRA12",
    MUST,
    "The service socket is not in plugins_registry.",
    why="the kubelet takes every socket there for a registration socket, and logs an error for it",
    change="make it in <kubelet>/plugins/<driver name>",
    source="pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go",
    lane=ARRIVAL,
)
async def keeps_its_service_out_of_the_registry(bed: DriverBed) -> None:
    """Look where the endpoint is; one socket may serve both, and then it is a registration socket."""
    first = _first(bed)
    _info(bed)
    folder = bed.kubelet.folder
    if first.endpoint != first.path and folder in first.endpoint.parents:
        raise FailedError(f"it is {first.endpoint.name} in plugins_registry")


@check(
    "DRA13",
    NOTE,
    "The registration socket is called after the driver.",
    why="two drivers of one name for their sockets take each other's place",
    change="call it <driver name>-reg.sock, or <driver name>-<pod UID>-reg.sock for rolling updates",
    source="kubeletplugin/draplugin.go",
    lane=ARRIVAL,
)
async def names_its_socket_after_itself(bed: DriverBed) -> str:
    """Compare the name of the file with that in GetInfo."""
    name = _first(bed).path.name
    if _info(bed).name not in name:
        raise FailedError(f"it is called {name}")
    return name


@check(
    "DRA14",
    MUST,
    "Every announced version prepares a claim alike.",
    why="an update of the kubelet takes another version, and asks for claims of running pods again",
    change="let all versions share the work and what is remembered; only share IDs are new in v1",
    source="pkg/kubelet/apis/dra/v1/api.proto, v1beta1/api.proto",
    lane="claims",
)
async def answers_alike_in_all_versions(bed: DriverBed) -> None:
    """Have one claim prepared by each version, in both orders, and unprepared by the last."""
    one = bed.registration
    known = [word for word in one.info.supported_versions if word in PREPARE] if one.info else []
    if len(known) < len(PREPARE):
        raise SkippedError("only one version is announced")
    seconds = bed.times.claim_limit_seconds
    for words in (known, known[::-1]):
        claim = bed.allocate(*bed.free())
        bed.claims[claim.uid] = claim
        answers = []
        async with connected(one.endpoint) as peer:
            for word in words:
                try:
                    found = await peer.call(PREPARE[word], (claim,), timeout_seconds=seconds)
                except RemoteError as error:
                    raise SkippedError(f"a call of {word} is answered with {error} (DRA09)") from error
                answers.append(_without_shares(found.get(claim.uid)))
        if answers[0] is None or answers[0].error or answers[0] != answers[1]:
            raise FailedError(f"{words[0]} answers {answers[0]}, and {words[1]} answers {answers[1]}")
        await bed.unprepare(claim, after="prepared by both versions")


def _without_shares(answer: PreparedClaim | None) -> PreparedClaim | None:
    """Return an answer as v1beta1 has it, which has no share IDs."""
    if answer is None:
        return None
    return replace(answer, devices=tuple(replace(one, share_id=None) for one in answer.devices))
