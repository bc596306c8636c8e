"""The kinds that the sandbox serves, and those that it only knows in order to refuse them in words.

The names, short names, verbs and subresources are Kubernetes' own (discovery of v1.36). What becomes of an
object of a kind is set by a flag here and done by `strategy`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.dra.versions import API_VERSIONS, GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_OF_NAMESPACES: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_OF_PARTS: Final = ("get", "patch", "update")
_OF_REFUSED: Final = ("create", "get")
"""What kubectl needs to see so that it asks, and prints our words."""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of an object, or an act upon it, with a path of its own."""

    name: str
    kind: str
    """The kind that it takes and answers."""
    verbs: tuple[str, ...] = _OF_PARTS
    group: str = ""
    """The group of that kind, if it is not the object's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object under one API version, for as long as the program runs."""

    plural: str
    kind: str
    group: str = ""
    """Empty for the core group."""
    version: str = "v1"
    namespaced: bool = True
    verbs: tuple[str, ...] = _ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    named_as_label: bool = False
    """Whether names are DNS labels; otherwise they are DNS subdomains."""
    counts_generations: bool = False
    """Whether `metadata.generation` grows with each change of the spec."""
    has_status: bool = False
    """Whether status and spec are changed apart, by `/status` and without it."""
    ends_gracefully: bool = False
    """Whether a deletion waits for the kubelet."""
    answers_deleted: bool = False
    """Whether a deletion answers the object, and not a Status."""
    needs_version: bool = False
    """Whether an update must say which version it rests on (AllowUnconditionalUpdate)."""
    is_review: bool = False
    """Whether what is created is answered, and not kept."""
    refusal: str = ""
    """Why objects of this kind cannot be created here; empty for what is served."""

    @property
    def singular(self) -> str:
        """The name for one of it."""
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in refusals, as in `pods` and `daemonsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind in refusals, as in `Pod` and `DaemonSet.apps`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def storage(self) -> str:
        """Where its objects are kept; both versions of events are kept in one place."""
        return "events" if self.kind == "Event" else self.qualified

    def subresource(self, name: str) -> Subresource | None:
        """Return the subresource of this name, if there is one."""
        return next((one for one in self.subresources if one.name == name), None)


def _review(plural: str, kind: str, group: str) -> Resource:
    return Resource(
        plural=plural, kind=kind, group=group, namespaced=False, verbs=("create",), is_review=True
    )


def _of_devices(
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    counts_generations: bool = False,
    subresources: tuple[Subresource, ...] = (),
    has_status: bool = False,
    version: str = "v1",
) -> Resource:
    """Return a kind of Dynamic Resource Allocation (dra.md D01, D50)."""
    return Resource(
        plural=plural,
        kind=kind,
        group=GROUP,
        version=version,
        namespaced=namespaced,
        subresources=subresources,
        counts_generations=counts_generations,
        has_status=has_status,
        answers_deleted=True,
    )


def _of_roles(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource(plural=plural, kind=kind, group="rbac.authorization.k8s.io", namespaced=namespaced)


_BINDING: Final = Subresource("binding", "Binding", ("create",))

SERVED: Final = (
    Resource(plural="bindings", kind="Binding", verbs=("create",)),
    Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",)),
    Resource(plural="events", kind="Event", short_names=("ev",)),
    Resource(
        plural="namespaces",
        kind="Namespace",
        namespaced=False,
        verbs=_OF_NAMESPACES,
        short_names=("ns",),
        subresources=(
            Subresource("finalize", "Namespace", ("update",)),
            Subresource("status", "Namespace"),
        ),
        named_as_label=True,
        has_status=True,
    ),
    Resource(
        plural="nodes",
        kind="Node",
        namespaced=False,
        short_names=("no",),
        subresources=(Subresource("status", "Node"),),
        has_status=True,
    ),
    Resource(
        plural="pods",
        kind="Pod",
        short_names=("po",),
        categories=("all",),
        subresources=(_BINDING, Subresource("log", "Pod", ("get",)), Subresource("status", "Pod")),
        counts_generations=True,
        has_status=True,
        ends_gracefully=True,
        answers_deleted=True,
    ),
    Resource(
        plural="resourcequotas",
        kind="ResourceQuota",
        short_names=("quota",),
        subresources=(Subresource("status", "ResourceQuota"),),
        has_status=True,
        answers_deleted=True,
    ),
    Resource(
        plural="serviceaccounts",
        kind="ServiceAccount",
        short_names=("sa",),
        subresources=(Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io"),),
        answers_deleted=True,
    ),
    Resource(
        plural="daemonsets",
        kind="DaemonSet",
        group="apps",
        short_names=("ds",),
        categories=("all",),
        subresources=(Subresource("status", "DaemonSet"),),
        counts_generations=True,
        has_status=True,
    ),
    _review("selfsubjectreviews", "SelfSubjectReview", "authentication.k8s.io"),
    _review("selfsubjectaccessreviews", "SelfSubjectAccessReview", "authorization.k8s.io"),
    _review("selfsubjectrulesreviews", "SelfSubjectRulesReview", "authorization.k8s.io"),
    Resource(plural="leases", kind="Lease", group="coordination.k8s.io", needs_version=True),
    Resource(plural="events", kind="Event", group="events.k8s.io", short_names=("ev",)),
    _of_roles("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _of_roles("clusterroles", "ClusterRole", namespaced=False),
    _of_roles("rolebindings", "RoleBinding"),
    _of_roles("roles", "Role"),
    _of_devices("deviceclasses", "DeviceClass", namespaced=False, counts_generations=True),
    _of_devices(
        "resourceclaims",
        "ResourceClaim",
        subresources=(Subresource("status", "ResourceClaim"),),
        has_status=True,
    ),
    _of_devices("resourceclaimtemplates", "ResourceClaimTemplate"),
    _of_devices("resourceslices", "ResourceSlice", namespaced=False, counts_generations=True),
    _of_devices(
        "devicetaintrules",
        "DeviceTaintRule",
        namespaced=False,
        counts_generations=True,
        subresources=(Subresource("status", "DeviceTaintRule"),),
        has_status=True,
        version="v1beta2",
    ),
)
"""All kinds, in the order of discovery: by group, then by name."""

BETAS: Final = tuple(
    replace(one, version=version)
    for version in API_VERSIONS[1:]
    for one in SERVED
    if (one.group, one.version) == (GROUP, API_VERSIONS[0])
)
"""The kinds of DRA in their older versions, which Kubernetes 1.36 serves only if it is told to (D01)."""


def _refused(
    plural: str, kind: str, group: str, *short_names: str, instead: str, namespaced: bool = True
) -> Resource:
    return Resource(
        plural=plural,
        kind=kind,
        group=group,
        namespaced=namespaced,
        verbs=_OF_REFUSED,
        short_names=short_names,
        refusal=f"the devplug sandbox runs pods and DaemonSets for devices, and nothing in it makes a {kind} "
        f"work; {instead}",
    )


_OF_TEMPLATE: Final = "apply a Pod with what stands under spec.template, or a DaemonSet, or use a cluster"
_OF_CLUSTER: Final = "leave it out, or use a cluster"
_OF_PRIORITY: Final = "write spec.priority into the pod, or use a cluster"

REFUSED: Final = (
    _refused("limitranges", "LimitRange", "", "limits", instead=_OF_CLUSTER),
    _refused("replicationcontrollers", "ReplicationController", "", "rc", instead=_OF_TEMPLATE),
    _refused("secrets", "Secret", "", instead=_OF_CLUSTER),
    _refused("services", "Service", "", "svc", instead=_OF_CLUSTER),
    _refused(
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        "admissionregistration.k8s.io",
        instead=_OF_CLUSTER,
        namespaced=False,
    ),
    _refused(
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        "admissionregistration.k8s.io",
        instead=_OF_CLUSTER,
        namespaced=False,
    ),
    _refused(
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        "crd",
        "crds",
        instead=_OF_CLUSTER,
        namespaced=False,
    ),
    _refused("controllerrevisions", "ControllerRevision", "apps", instead=_OF_CLUSTER),
    _refused("deployments", "Deployment", "apps", "deploy", instead=_OF_TEMPLATE),
    _refused("replicasets", "ReplicaSet", "apps", "rs", instead=_OF_TEMPLATE),
    _refused("statefulsets", "StatefulSet", "apps", "sts", instead=_OF_TEMPLATE),
    _refused("cronjobs", "CronJob", "batch", "cj", instead=_OF_TEMPLATE),
    _refused("jobs", "Job", "batch", instead=_OF_TEMPLATE),
    _refused("networkpolicies", "NetworkPolicy", "networking.k8s.io", "netpol", instead=_OF_CLUSTER),
    _refused("runtimeclasses", "RuntimeClass", "node.k8s.io", instead=_OF_CLUSTER, namespaced=False),
    _refused(
        "priorityclasses",
        "PriorityClass",
        "scheduling.k8s.io",
        "pc",
        instead=_OF_PRIORITY,
        namespaced=False,
    ),
)
"""What tutorials apply too, or kubectl looks for: discovery tells of it, so that its user reads why not."""


def resource_of_path(
    group: str, version: str, plural: str, betas: Iterable[Resource] = ()
) -> Resource | None:
    """Return what is served, or refused, under this path; `betas` is served too."""
    for one in (*SERVED, *REFUSED, *betas):
        if (one.group, one.version, one.plural) == (group, version, plural):
            return one
    return None


def resource_of_kind(api_version: str, kind: str) -> Resource | None:
    """Return what objects of this `apiVersion` and `kind` belong to."""
    for one in (*SERVED, *REFUSED):
        if (one.api_version, one.kind) == (api_version, kind):
            return one
    return None


def known(api_version: str, kind: str) -> Resource:
    """Return what objects of this `apiVersion` and `kind` belong to, which is there."""
    resource = resource_of_kind(api_version, kind)
    assert resource is not None
    return resource
