"""The catalogue of faults that a kubelet, a caller, a cluster or the machine can cause, and who tries them.

Each has the checks of the judge that try it, of device plugins or of DRA drivers, or why none can. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and the checks that try it, or why none can."""

    number: str
    """In the catalogue. Of plugins: L for lists, A Allocate, C the other calls, X what else happens.

    Of drivers: R for registration and restarts, S slices, P prepare, H health, W the wire, N the node.
    """
    what: str
    checks: tuple[str, ...] = ()
    why_not: str = ""


def _fault(number: str, what: str, *checks: str) -> Fault:
    return Fault(number, what, checks)


def _untried(number: str, what: str, why_not: str) -> Fault:
    return Fault(number, what, why_not=why_not)


FAULTS: Final = (
    # What a plugin may send: ListAndWatch as the kubelet gets it.
    _fault("L1", "the first list is late, or never comes", "STR01"),
    _fault("L2", "the list is empty where devices are", "STR02"),
    _fault("L3", "an ID appears twice in a list, perhaps with another health", "STR04"),
    _fault("L4", "an ID is empty, too long, or no text", "STR03", "STR06", "STR15"),
    _fault("L5", "the list is larger than 4 MiB", "STR10"),
    _fault("L6", "lists come in thousands a second", "STR17"),
    _fault("L7", "the same list comes again and again", "STR07"),
    _fault("L8", "the stream ends, with or without an error", "STR14", "RES04"),
    _fault("L9", "the ID of a device that a pod has leaves the list", "STR22"),
    _fault(
        "L10",
        "NUMA nodes that no machine has, or not this one, or an empty topology",
        "STR08",
        "STR09",
        "STR16",
    ),
    # What a plugin may be asked: Allocate.
    _fault("A1", "Allocate: an empty message, no container requests", "ALL08"),
    _fault("A2", "Allocate: a container request without IDs", "ALL09"),
    _fault("A3", "Allocate: an ID that is not known", "ALL05"),
    _fault("A4", "Allocate: a device that is Unhealthy", "ALL06"),
    _fault("A5", "Allocate: the node is gone or is another file than before", "ALL14", "STR22"),
    _fault("A6", "Allocate: an ID twice", "ALL07"),
    _fault("A7", "Allocate: the same IDs again later", "ALL10"),
    _fault(
        "A8",
        "Allocate: very many IDs, an ID of a megabyte, bytes that are no text",
        "ALL32",
        "HOS04",
        "HOS11",
        "HOS01",
    ),
    _fault("A9", "Allocate: a path that no container should have", "ALL16", "ALL17", "ALL18"),
    _fault(
        "A10",
        "Allocate: the plugin's code fails, or gives the wrong number of answers",
        "ALL02",
        "ALL03",
        "ALL04",
        "ALL28",
    ),
    _fault("A11", "Allocate: the plugin's code takes too long", "ALL12", "ALL13"),
    _untried(
        "A12",
        "Allocate: before the first look at the hardware, or while the plugin ends",
        "nobody outside can hit that moment without a race; REG02 and END01 judge the time around it",
    ),
    _fault("A13", "Allocate: very many calls a second", "ALL11", "ALL13", "HOS13"),
    _fault("A14", "Allocate: an answer of more than 4 MiB", "ALL32"),
    _fault(
        "A15",
        "Allocate: an ID that a running container has, after the kubelet has forgotten it "
        "(kubernetes/kubernetes#137534)",
        "ALL33",
    ),
    # What a plugin may be asked: the other calls.
    _fault(
        "C1", "GetPreferredAllocation or PreStartContainer is called and was not announced", "PRE09", "PST05"
    ),
    _fault(
        "C2",
        "a preference with odd sizes, or with IDs that must be included",
        "PRE01",
        "PRE02",
        "PRE03",
        "PRE04",
        "PRE05",
    ),
    _fault("C3", "the plugin's preference fails or is slow", "PRE05", "PRE06"),
    _fault("C4", "PreStartContainer: an unknown ID, none, or slow code", "PST02", "PST04"),
    _fault("C5", "many ListAndWatch streams", "STR11", "ALL27", "HOS09", "HOS15"),
    _untried(
        "C6",
        "GetInfo and NotifyRegistrationStatus of plugins_registry",
        "a plugin that is only found there calls nobody, and is not judged yet",
    ),
    _fault("C7", "an unknown method or service, HTTP/1", "HOS03", "HOS05"),
    _fault("C8", "bytes that are no message", "HOS01", "HOS02", "HOS10"),
    _untried(
        "C9",
        "a small compressed message that is huge when it is unpacked",
        "the gRPC library refuses it or limits its size; the plugin's code is not called",
    ),
    _fault("C10", "headers of many kilobytes", "HOS12"),
    _fault("C11", "more calls at once than a server accepts", "HOS13"),
    _fault("C12", "a deadline that has passed, a call that was cancelled", "ALL31"),
    # What a kubelet may do.
    _fault(
        "X01",
        "the kubelet is restarted, once and many times",
        *("RES01", "RES02", "RES03", "RES11", "RES22", "RES24"),
    ),
    _fault("X02", "the kubelet is killed in the middle of a call", "RES01", "RES04", "ALL31", "REG15"),
    _fault("X03", "two restarts within 50 ms", "RES10"),
    _fault("X04", "the plugin's socket is deleted", "RES06"),
    _fault("X05", "the plugin folder is removed and created again", "RES23"),
    _fault("X06", "kubelet.sock is there and nobody listens", "REG15"),
    _fault("X07", "the kubelet is away, at the start or later", "REG10", "REG11", "RES08", "RES09"),
    _fault(
        "X08",
        "Register is refused, answered late, or followed by no stream; two calls of it at once",
        *("REG08", "REG09", "REG12", "REG13", "REG14", "RES04", "RES05", "RES22"),
    ),
    _fault("X09", "streams are opened and closed at random", "STR13", "STR24", "HOS09"),
    _untried(
        "X10",
        "the kubelet stops reading a stream that is open",
        "the judge's own gRPC reads as long as a connection is open",
    ),
    _fault("X11", "an old stream lingers beside the new one", "STR24", "STR25"),
    _fault("X12", "the end of an old stream takes the new one down (1.36)", "RES16"),
    # What may happen to the plugin.
    _fault("X13", "the plugin is killed", "RES18", "RES19"),
    _fault(
        "X14",
        "the plugin gets SIGTERM or SIGINT",
        "END01",
        "END02",
        "END03",
        "END04",
        "END07",
        "END08",
    ),
    _fault("X15", "the plugin is stopped for a while (SIGSTOP)", "RES21"),
    _untried(
        "X16",
        "the plugin's own loop is blocked by its code",
        "it cannot be caused from outside; ALL12 and PRE06 see its effects",
    ),
    _fault("X17", "no descriptors are left for a while", "HOS14"),
    _untried(
        "X17",
        "disks are full or read-only, memory is short",
        "it needs file systems and limits that only the plugin's own tests can make",
    ),
    _fault("X18", "events are lost, and the plugin has to look by itself", "RES21", "RES07", "RES06"),
    _untried(
        "X19",
        "the clock is set",
        "a time namespace does not change CLOCK_REALTIME, and the judge must not set the machine's clock",
    ),
    _fault(
        "X20",
        "sockets of dead plugins, of other programs and of a second copy are in the folder",
        "END05",
        "END06",
        "RES18",
        "RES20",
    ),
    _fault("X21", "a successor starts before, or after, its predecessor has ended", "RES17", "RES20"),
    # What may happen to devices.
    _fault("X22", "a device is unplugged, and plugged in again", "STR20", "STR21", "STR22", "STR23"),
    _fault("X23", "a node is replaced by another file", "ALL14", "ALL19"),
    _fault("X24", "devices flap", "STR17", "STR18"),
    _untried(
        "X25",
        "a hundred thousand devices come and go",
        "no node has so many, and no command makes them for every kind of device",
    ),
    _fault("X26", "there are more devices than a list may hold", "STR10"),
    _untried(
        "X27",
        "a storm of events",
        "it needs a kernel or a folder for the plugin alone; STR17 sees its effects",
    ),
    _untried("X28", "a thousand resources in one plugin", "one resource is judged at a time (--resource)"),
    _untried(
        "X29",
        "two hundred plugins at one kubelet",
        "it concerns a node, not one plugin; RES22 judges the part of each plugin",
    ),
    # What may come over the socket.
    _fault("X30", "HTTP/2 frames that are invalid, cut short or in the wrong order", "HOS05", "HOS08"),
    _fault("X31", "bytes that are no valid message", "HOS01", "HOS02"),
    _fault("X32", "messages of many megabytes", "HOS04"),
    _fault("X33", "very many connections, silent ones and short ones", "HOS06", "HOS07"),
    _fault(
        "X34",
        "many calls of Allocate at once, with every mixture of IDs",
        "ALL05",
        "ALL06",
        "ALL07",
        "ALL11",
        "HOS13",
    ),
    _fault("X35", "callers that give up during a call", "ALL31", "HOS08"),
    _fault("X36", "GetPreferredAllocation with sizes at their limits", "PRE01", "PRE02", "PRE03", "PRE05"),
)
"""In the order of a plugin's calls, then of what happens to processes, devices and connections."""

DRIVER_FAULTS: Final = (
    # What users of drivers have reported, and what the code of a kubelet can do to one.
    _fault(
        "R1",
        "the driver is not registered when a pod comes: after a boot, or long after its start "
        "(NVIDIA/k8s-dra-driver-gpu#814)",
        *("DRA01", "DRA02", "DRA08", "DRA74", "DRA75", "DRA80"),
    ),
    _fault(
        "R2",
        "the registration is refused, or leads nowhere",
        *("DRA03", "DRA04", "DRA05", "DRA06", "DRA10", "DRA12", "DRA13"),
    ),
    _fault("R3", "a kubelet of another release takes another version", "DRA07", "DRA09", "DRA14", "DRA85"),
    _fault("R4", "the kubelet is restarted while pods run", "DRA11", "DRA27", "DRA44", "DRA70"),
    _fault(
        "R5",
        "the driver is restarted between prepare and the container's start, or killed (google/dranet#89)",
        *("DRA72", "DRA73", "DRA74"),
    ),
    _fault(
        "R6", "sockets stay when the driver ends, or are removed while it runs", "DRA71", "DRA74", "DRA75"
    ),
    _fault("R7", "two instances while a DaemonSet is updated", "DRA33", "DRA81"),
    _fault(
        "S1",
        "slices are gone after a restart of the kubelet, for good "
        "(NVIDIA/k8s-dra-driver-gpu#330, kubernetes/enhancements#4667)",
        *("DRA27", "DRA38", "DRA70", "DRA78", "DRA79"),
    ),
    _fault("S2", "a slice has no devices (NVIDIA/k8s-dra-driver-gpu#1008)", "DRA20", "DRA28"),
    _fault(
        "S3", "the driver starts while its slices are wiped (kubernetes/kubernetes#125163)", "DRA32", "DRA78"
    ),
    _fault(
        "S4",
        "devices that are gone are published, or prepared (google/dranet#155)",
        "DRA31",
        "DRA35",
        "DRA48",
        "DRA59",
    ),
    _fault("S5", "a pool is incomplete, invalid or refused", "DRA22", "DRA23", "DRA25"),
    _fault(
        "S6",
        "an older API server drops fields, and nobody is told (kubernetes/kubernetes#130856)",
        *("DRA26", "DRA34"),
    ),
    _untried(
        "S7",
        "the cluster has only v1beta1 of the API (NVIDIA/k8s-dra-driver-gpu#766)",
        "the judge's API server speaks resource.k8s.io/v1 alone",
    ),
    _fault("S8", "slices outlive their node, or those of others are removed", "DRA21", "DRA24", "DRA30"),
    _fault(
        "S9",
        "the API server is away, slow, silent or compacts",
        *("DRA53", "DRA54", "DRA77", "DRA78", "DRA79", "DRA80"),
    ),
    _fault(
        "P1",
        "a container gets other devices than are allocated, or those of another claim",
        *("DRA40", "DRA41", "DRA42", "DRA43", "DRA45"),
    ),
    _fault("P2", "a refused prepare costs the pod a minute", "DRA08", "DRA51", "DRA53", "DRA58", "DRA77"),
    _fault("P3", "the kubelet gives a prepare up after 45 s, and asks again", "DRA44", "DRA54", "DRA55"),
    _fault(
        "P4",
        "of several claims in one call one fails, or one is there twice",
        "DRA49",
        "DRA50",
        "DRA56",
        "DRA57",
    ),
    _fault("P5", "a claim is gone, new under its name, or not allocated", "DRA45", "DRA46", "DRA47", "DRA61"),
    _fault("P6", "a device is allocated again before its old claim is unprepared", "DRA52"),
    _fault(
        "P7",
        "the runtime does not find the device, or reads half a file",
        *("DRA62", "DRA63", "DRA64", "DRA66"),
    ),
    _fault(
        "P8",
        "pods stay Terminating (kubernetes/kubernetes#129402, #137122)",
        *("DRA60", "DRA61", "DRA73", "DRA76"),
    ),
    _untried(
        "P9",
        "pods stay Terminating because the driver was removed (kubernetes/kubernetes#129402)",
        "nobody is there to be judged: only the kubelet could give up",
    ),
    _fault("P10", "a claim's device or file is not returned after use", "DRA65", "DRA68", "DRA73"),
    _fault("P11", "a device is pulled out while a claim has it (google/dranet#33)", "DRA37"),
    _untried(
        "P12",
        "hardware stays as the last pod left it: a mode of MIG, an interface in a lost namespace "
        "(google/dranet#56, NVIDIA/k8s-dra-driver-gpu#473)",
        "only a tool for that hardware sees it; DRA68 judges that the next claim gets the device",
    ),
    _fault(
        "H1",
        "a device that was taken out of its slice does not come back (NVIDIA/k8s-dra-driver-gpu#904)",
        *("DRA28", "DRA36"),
    ),
    _fault("H2", "the time of a taint is lost, and evictions start to wait again", "DRA29", "DRA33"),
    _fault(
        "H3", "pods show no health, an old one or Unknown", *("DRA90", "DRA91", "DRA92", "DRA93", "DRA94")
    ),
    _untried(
        "H4",
        "a device breaks, and its partitions can still be allocated (NVIDIA/k8s-dra-driver-gpu#1316)",
        "what breaks and mends a device differs by its kind; DRA29 and DRA33 judge the taints there are",
    ),
    _fault("W1", "bytes that are no HTTP/2, or no message", "DRA82", "DRA83"),
    _fault("W2", "very many claims in a call, and names of a megabyte", "DRA84"),
    _fault("W3", "UIDs and names that are paths", "DRA67", "DRA86"),
    _untried(
        "N1",
        "a device plugin and a driver serve the same hardware (kubernetes/kubernetes#141426)",
        "that takes two programs, and one is judged",
    ),
    _untried(
        "N2",
        "status.devices is refused for want of a right (kubernetes/kubernetes#138149)",
        "the judge's API server refuses nobody; `devplug sandbox up --rbac` shows which rights are missing",
    ),
)
"""As `FAULTS`, of DRA drivers: registration, slices, prepare, health, the wire, and the node around them."""
