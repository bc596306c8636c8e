"""Texts that have a type of their own: what such a text may be, where Kubernetes tells it.

The values are those that its OpenAPI tells as `enum` (`+enum` in api/core/v1/types.go and its like), in the
order of the alphabet. A decoder takes any text; what may stand there is decided by validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WORDS"]

_VALUES: Final[Mapping[str, str]] = {
    "AppArmorProfileType": "Localhost RuntimeDefault Unconfined",
    "AzureDataDiskCachingMode": "None ReadOnly ReadWrite",
    "AzureDataDiskKind": "Dedicated Managed Shared",
    "DNSPolicy": "ClusterFirst ClusterFirstWithHostNet Default None",
    "DaemonSetUpdateStrategyType": "OnDelete RollingUpdate",
    "HostPathType": '"" BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket',
    "MountPropagationMode": "Bidirectional HostToContainer None",
    "NamespacePhase": "Active Terminating",
    "NodeInclusionPolicy": "Honor Ignore",
    "NodePhase": "Pending Running Terminated",
    "NodeSelectorOperator": "DoesNotExist Exists Gt In Lt NotIn",
    "PersistentVolumeAccessMode": "ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod",
    "PersistentVolumeMode": "Block Filesystem",
    "PodFSGroupChangePolicy": "Always OnRootMismatch",
    "PodPhase": "Failed Pending Running Succeeded Unknown",
    "PodQOSClass": "BestEffort Burstable Guaranteed",
    "PreemptionPolicy": "Never PreemptLowerPriority",
    "ProcMountType": "Default Unmasked",
    "Protocol": "SCTP TCP UDP",
    "PullPolicy": "Always IfNotPresent Never",
    "ResourceQuotaScope": """
        BestEffort CrossNamespacePodAffinity NotBestEffort NotTerminating PriorityClass Terminating
        VolumeAttributesClass
    """,
    "RestartPolicy": "Always Never OnFailure",
    "ScopeSelectorOperator": "DoesNotExist Exists In NotIn",
    "SeccompProfileType": "Localhost RuntimeDefault Unconfined",
    "Signal": """
        SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE
        SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMAX-1 SIGRTMAX-10 SIGRTMAX-11 SIGRTMAX-12 SIGRTMAX-13
        SIGRTMAX-14 SIGRTMAX-2 SIGRTMAX-3 SIGRTMAX-4 SIGRTMAX-5 SIGRTMAX-6 SIGRTMAX-7 SIGRTMAX-8 SIGRTMAX-9
        SIGRTMIN SIGRTMIN+1 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMIN+2
        SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGSEGV SIGSTKFLT SIGSTOP
        SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU
        SIGXFSZ
    """,
    "SupplementalGroupsPolicy": "Merge Strict",
    "TaintEffect": "NoExecute NoSchedule PreferNoSchedule",
    "TerminationMessagePolicy": "FallbackToLogsOnError File",
    "TolerationOperator": "Equal Exists Gt Lt",
    "URIScheme": "HTTP HTTPS",
    "UnsatisfiableConstraintAction": "DoNotSchedule ScheduleAnyway",
}

_OPEN: Final = """
    Capability CauseType ConditionStatus ContainerRestartPolicy ContainerRestartRuleAction
    ContainerRestartRuleOnExitCodesOperator CoordinatedLeaseStrategy DaemonSetConditionType
    DeletionPropagation FinalizerName LabelSelectorOperator ManagedFieldsOperationType NamespaceConditionType
    NodeAddressType NodeConditionType OSName PodConditionType PodResizeStatus PodSELinuxChangePolicy
    RecursiveReadOnlyMode ResourceHealthStatus ResourceID ResourceName ResourceResizeRestartPolicy
    StatusReason StorageMedium UniqueVolumeName
"""

WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_OPEN.split(), ()),
    **{word: tuple(value.strip('"') for value in values.split()) for word, values in _VALUES.items()},
}
"""The values by type; none for a type of which Kubernetes tells none."""
