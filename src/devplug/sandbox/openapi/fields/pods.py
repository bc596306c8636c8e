"""Fields of pods, but for containers, volumes and the status.

What a line means is `notation`'s. Names and types are those of Kubernetes 1.36 (api/core/v1/types.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PODS"]

PODS: Final[Mapping[str, str]] = {
    "Pod": "*TypeMeta metadata:ObjectMeta spec:PodSpec status:PodStatus",
    "PodTemplateSpec": "metadata:ObjectMeta spec:PodSpec",
    "PodSpec": """
        volumes:[Volume] initContainers:[Container] containers!:[Container]
        ephemeralContainers:[EphemeralContainer] restartPolicy:RestartPolicy
        terminationGracePeriodSeconds:int64 activeDeadlineSeconds:int64 dnsPolicy:DNSPolicy
        nodeSelector:{string} serviceAccountName serviceAccount automountServiceAccountToken:bool nodeName
        hostNetwork:bool hostPID:bool hostIPC:bool shareProcessNamespace:bool
        securityContext:PodSecurityContext imagePullSecrets:[LocalObjectReference] hostname subdomain
        affinity:Affinity schedulerName tolerations:[Toleration] hostAliases:[HostAlias] priorityClassName
        priority:int32 dnsConfig:PodDNSConfig readinessGates:[PodReadinessGate] runtimeClassName
        enableServiceLinks:bool preemptionPolicy:PreemptionPolicy overhead:ResourceList
        topologySpreadConstraints:[TopologySpreadConstraint] setHostnameAsFQDN:bool os:PodOS hostUsers:bool
        schedulingGates:[PodSchedulingGate] resourceClaims:[PodResourceClaim] resources:ResourceRequirements
        hostnameOverride schedulingGroup:PodSchedulingGroup
    """,
    "PodSecurityContext": """
        seLinuxOptions:SELinuxOptions windowsOptions:WindowsSecurityContextOptions runAsUser:int64
        runAsGroup:int64 runAsNonRoot:bool supplementalGroups:[int64]
        supplementalGroupsPolicy:SupplementalGroupsPolicy fsGroup:int64 sysctls:[Sysctl]
        fsGroupChangePolicy:PodFSGroupChangePolicy seccompProfile:SeccompProfile
        appArmorProfile:AppArmorProfile seLinuxChangePolicy:PodSELinuxChangePolicy
    """,
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity",
    "Toleration": "key operator:TolerationOperator value effect:TaintEffect tolerationSeconds:int64",
    "HostAlias": "ip! hostnames:[string]",
    "PodDNSConfig": "nameservers:[string] searches:[string] options:[PodDNSConfigOption]",
    "PodReadinessGate": "conditionType!:PodConditionType",
    "TopologySpreadConstraint": """
        maxSkew!:int32 topologyKey! whenUnsatisfiable!:UnsatisfiableConstraintAction
        labelSelector:LabelSelector minDomains:int32 nodeAffinityPolicy:NodeInclusionPolicy
        nodeTaintsPolicy:NodeInclusionPolicy matchLabelKeys:[string]
    """,
    "PodOS": "name!:OSName",
    "PodSchedulingGate": "name!",
    "PodResourceClaim": "name! resourceClaimName resourceClaimTemplateName",
    "PodSchedulingGroup": "podGroupName",
    "Sysctl": "name! value!",
    "NodeAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
        preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
    """,
    "PodAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
        preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
    """,
    "PodAntiAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
        preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
    """,
    "PodDNSConfigOption": "name value",
    "PreferredSchedulingTerm": "weight!:int32 preference!:NodeSelectorTerm",
    "PodAffinityTerm": """
        labelSelector:LabelSelector namespaces:[string] topologyKey! namespaceSelector:LabelSelector
        matchLabelKeys:[string] mismatchLabelKeys:[string]
    """,
    "WeightedPodAffinityTerm": "weight!:int32 podAffinityTerm!:PodAffinityTerm",
}
