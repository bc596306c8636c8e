"""Fields of a pod's containers.

What a line means is `notation`'s. Names and types are those of Kubernetes 1.36 (api/core/v1/types.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CONTAINERS"]

_CONTAINER: Final = """
    name! image command:[string] args:[string] workingDir ports:[ContainerPort] envFrom:[EnvFromSource]
    env:[EnvVar] resources:ResourceRequirements resizePolicy:[ContainerResizePolicy]
    restartPolicy:ContainerRestartPolicy restartPolicyRules:[ContainerRestartRule]
    volumeMounts:[VolumeMount] volumeDevices:[VolumeDevice] livenessProbe:Probe readinessProbe:Probe
    startupProbe:Probe lifecycle:Lifecycle terminationMessagePath
    terminationMessagePolicy:TerminationMessagePolicy imagePullPolicy:PullPolicy
    securityContext:SecurityContext stdin:bool stdinOnce:bool tty:bool
"""

CONTAINERS: Final[Mapping[str, str]] = {
    "Container": _CONTAINER,
    "EphemeralContainer": "*EphemeralContainerCommon targetContainerName",
    "ContainerPort": "name hostPort:int32 containerPort!:int32 protocol:Protocol hostIP",
    "EnvFromSource": "prefix configMapRef:ConfigMapEnvSource secretRef:SecretEnvSource",
    "EnvVar": "name! value valueFrom:EnvVarSource",
    "ResourceRequirements": "limits:ResourceList requests:ResourceList claims:[ResourceClaim]",
    "ContainerResizePolicy": "resourceName!:ResourceName restartPolicy!:ResourceResizeRestartPolicy",
    "ContainerRestartRule": "action!:ContainerRestartRuleAction exitCodes:ContainerRestartRuleOnExitCodes",
    "VolumeMount": """
        name! readOnly:bool recursiveReadOnly:RecursiveReadOnlyMode mountPath! subPath
        mountPropagation:MountPropagationMode subPathExpr
    """,
    "VolumeDevice": "name! devicePath!",
    "Probe": """
        *ProbeHandler initialDelaySeconds:int32 timeoutSeconds:int32 periodSeconds:int32
        successThreshold:int32 failureThreshold:int32 terminationGracePeriodSeconds:int64
    """,
    "Lifecycle": "postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:Signal",
    "SecurityContext": """
        capabilities:Capabilities privileged:bool seLinuxOptions:SELinuxOptions
        windowsOptions:WindowsSecurityContextOptions runAsUser:int64 runAsGroup:int64 runAsNonRoot:bool
        readOnlyRootFilesystem:bool allowPrivilegeEscalation:bool procMount:ProcMountType
        seccompProfile:SeccompProfile appArmorProfile:AppArmorProfile
    """,
    "EphemeralContainerCommon": _CONTAINER,
    "ConfigMapEnvSource": "*LocalObjectReference optional:bool",
    "SecretEnvSource": "*LocalObjectReference optional:bool",
    "EnvVarSource": """
        fieldRef:ObjectFieldSelector resourceFieldRef:ResourceFieldSelector
        configMapKeyRef:ConfigMapKeySelector secretKeyRef:SecretKeySelector fileKeyRef:FileKeySelector
    """,
    "ResourceClaim": "name! request",
    "ContainerRestartRuleOnExitCodes": "operator!:ContainerRestartRuleOnExitCodesOperator values:[int32]",
    "ProbeHandler": "exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction grpc:GRPCAction",
    "LifecycleHandler": "exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction sleep:SleepAction",
    "Capabilities": "add:[Capability] drop:[Capability]",
    "SELinuxOptions": "user role type level",
    "WindowsSecurityContextOptions": """
        gmsaCredentialSpecName gmsaCredentialSpec runAsUserName hostProcess:bool
    """,
    "SeccompProfile": "type!:SeccompProfileType localhostProfile",
    "AppArmorProfile": "type!:AppArmorProfileType localhostProfile",
    "ConfigMapKeySelector": "*LocalObjectReference key! optional:bool",
    "SecretKeySelector": "*LocalObjectReference key! optional:bool",
    "FileKeySelector": "volumeName! path! key! optional:bool",
    "ExecAction": "command:[string]",
    "HTTPGetAction": "path port!:IntOrString host scheme:URIScheme httpHeaders:[HTTPHeader]",
    "TCPSocketAction": "port!:IntOrString host",
    "GRPCAction": "port!:int32 service",
    "SleepAction": "seconds!:int64",
    "HTTPHeader": "name! value!",
}
