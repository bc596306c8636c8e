"""The fields of pods, of their containers, volumes and statuses, as tables.

`types` has the notation. Names and types are those of Kubernetes 1.36 (api/core/v1/types.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PODS: Final[Mapping[str, str]] = {
    "Pod": "*TypeMeta metadata:ObjectMeta spec:PodSpec status:PodStatus",
    "PodTemplateSpec": "metadata:ObjectMeta spec:PodSpec",
    "PodSpec": """
        volumes:[Volume] initContainers=20:[Container] containers!=2:[Container]
        ephemeralContainers=34:[EphemeralContainer] restartPolicy=3:RestartPolicy
        terminationGracePeriodSeconds?:int64 activeDeadlineSeconds?:int64 dnsPolicy:DNSPolicy
        nodeSelector:{string} serviceAccountName serviceAccount automountServiceAccountToken?=21:bool
        nodeName=10 hostNetwork:bool hostPID:bool hostIPC:bool shareProcessNamespace?=27:bool
        securityContext?=14:PodSecurityContext imagePullSecrets:[LocalObjectReference] hostname subdomain
        affinity?:Affinity schedulerName tolerations=22:[Toleration] hostAliases:[HostAlias] priorityClassName
        priority?:int32 dnsConfig?:PodDNSConfig readinessGates=28:[PodReadinessGate] runtimeClassName?
        enableServiceLinks?:bool preemptionPolicy?:PreemptionPolicy overhead:ResourceList
        topologySpreadConstraints:[TopologySpreadConstraint] setHostnameAsFQDN?=35:bool os?:PodOS
        hostUsers?:bool schedulingGates:[PodSchedulingGate] resourceClaims:[PodResourceClaim]
        resources?:ResourceRequirements hostnameOverride? schedulingGroup?=43:PodSchedulingGroup
    """,
    "PodSecurityContext": """
        seLinuxOptions?:SELinuxOptions windowsOptions?=8:WindowsSecurityContextOptions runAsUser?=2:int64
        runAsGroup?=6:int64 runAsNonRoot?=3:bool supplementalGroups:[int64]
        supplementalGroupsPolicy?=12:SupplementalGroupsPolicy fsGroup?=5:int64 sysctls=7:[Sysctl]
        fsGroupChangePolicy?=9:PodFSGroupChangePolicy seccompProfile?:SeccompProfile
        appArmorProfile?:AppArmorProfile seLinuxChangePolicy?=13:PodSELinuxChangePolicy
    """,
    "Affinity": "nodeAffinity?:NodeAffinity podAffinity?:PodAffinity podAntiAffinity?:PodAntiAffinity",
    "Toleration": "key operator:TolerationOperator value effect:TaintEffect tolerationSeconds?:int64",
    "HostAlias": "ip! hostnames:[string]",
    "PodDNSConfig": "nameservers:[string] searches:[string] options:[PodDNSConfigOption]",
    "PodReadinessGate": "conditionType!:PodConditionType",
    "TopologySpreadConstraint": """
        maxSkew!:int32 topologyKey! whenUnsatisfiable!:UnsatisfiableConstraintAction
        labelSelector?:LabelSelector minDomains?:int32 nodeAffinityPolicy?:NodeInclusionPolicy
        nodeTaintsPolicy?:NodeInclusionPolicy matchLabelKeys:[string]
    """,
    "PodOS": "name!:OSName",
    "PodSchedulingGate": "name!",
    "PodResourceClaim": "name! resourceClaimName?=3 resourceClaimTemplateName?",
    "PodSchedulingGroup": "podGroupName?",
    "Sysctl": "name! value!",
    "NodeAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution?:NodeSelector
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
    "PodDNSConfigOption": "name value?",
    "PreferredSchedulingTerm": "weight!:int32 preference!:NodeSelectorTerm",
    "PodAffinityTerm": """
        labelSelector?:LabelSelector namespaces:[string] topologyKey! namespaceSelector?:LabelSelector
        matchLabelKeys:[string] mismatchLabelKeys:[string]
    """,
    "WeightedPodAffinityTerm": "weight!:int32 podAffinityTerm!:PodAffinityTerm",
}

_CONTAINER: Final = """
    name! image command:[string] args:[string] workingDir ports:[ContainerPort] envFrom=19:[EnvFromSource]
    env=7:[EnvVar] resources:ResourceRequirements resizePolicy=23:[ContainerResizePolicy]
    restartPolicy?:ContainerRestartPolicy restartPolicyRules:[ContainerRestartRule]
    volumeMounts=9:[VolumeMount] volumeDevices=21:[VolumeDevice] livenessProbe?=10:Probe readinessProbe?:Probe
    startupProbe?=22:Probe lifecycle?=12:Lifecycle terminationMessagePath
    terminationMessagePolicy=20:TerminationMessagePolicy imagePullPolicy=14:PullPolicy
    securityContext?:SecurityContext stdin:bool stdinOnce:bool tty:bool
"""

CONTAINERS: Final[Mapping[str, str]] = {
    "Container": _CONTAINER,
    "EphemeralContainer": "*EphemeralContainerCommon targetContainerName",
    "ContainerPort": "name hostPort:int32 containerPort!:int32 protocol:Protocol hostIP",
    "EnvFromSource": "prefix configMapRef?:ConfigMapEnvSource secretRef?:SecretEnvSource",
    "EnvVar": "name! value valueFrom?:EnvVarSource",
    "ResourceRequirements": "limits:ResourceList requests:ResourceList claims:[ResourceClaim]",
    "ContainerResizePolicy": "resourceName!:ResourceName restartPolicy!:ResourceResizeRestartPolicy",
    "ContainerRestartRule": "action!-:ContainerRestartRuleAction exitCodes?:ContainerRestartRuleOnExitCodes",
    "VolumeMount": """
        name! readOnly:bool recursiveReadOnly?=7:RecursiveReadOnlyMode mountPath!=3 subPath
        mountPropagation?:MountPropagationMode subPathExpr
    """,
    "VolumeDevice": "name! devicePath!",
    "Probe": """
        *ProbeHandler initialDelaySeconds:int32 timeoutSeconds:int32 periodSeconds:int32
        successThreshold:int32 failureThreshold:int32 terminationGracePeriodSeconds?:int64
    """,
    "Lifecycle": "postStart?:LifecycleHandler preStop?:LifecycleHandler stopSignal?:Signal",
    "SecurityContext": """
        capabilities?:Capabilities privileged?:bool seLinuxOptions?:SELinuxOptions
        windowsOptions?=10:WindowsSecurityContextOptions runAsUser?=4:int64 runAsGroup?=8:int64
        runAsNonRoot?=5:bool readOnlyRootFilesystem?:bool allowPrivilegeEscalation?:bool
        procMount?=9:ProcMountType seccompProfile?=11:SeccompProfile appArmorProfile?:AppArmorProfile
    """,
    "EphemeralContainerCommon": _CONTAINER,
    "ConfigMapEnvSource": "*LocalObjectReference optional?:bool",
    "SecretEnvSource": "*LocalObjectReference optional?:bool",
    "EnvVarSource": """
        fieldRef?:ObjectFieldSelector resourceFieldRef?:ResourceFieldSelector
        configMapKeyRef?:ConfigMapKeySelector secretKeyRef?:SecretKeySelector fileKeyRef?:FileKeySelector
    """,
    "ResourceClaim": "name! request",
    "ContainerRestartRuleOnExitCodes": "operator!-:ContainerRestartRuleOnExitCodesOperator values:[int32]",
    "ProbeHandler": "exec?:ExecAction httpGet?:HTTPGetAction tcpSocket?:TCPSocketAction grpc?:GRPCAction",
    "LifecycleHandler": """
        exec?:ExecAction httpGet?:HTTPGetAction tcpSocket?:TCPSocketAction sleep?:SleepAction
    """,
    "Capabilities": "add:[Capability] drop:[Capability]",
    "SELinuxOptions": "user role type level",
    "WindowsSecurityContextOptions": """
        gmsaCredentialSpecName? gmsaCredentialSpec? runAsUserName? hostProcess?:bool
    """,
    "SeccompProfile": "type!:SeccompProfileType localhostProfile?",
    "AppArmorProfile": "type!:AppArmorProfileType localhostProfile?",
    "ConfigMapKeySelector": "*LocalObjectReference key! optional?:bool",
    "SecretKeySelector": "*LocalObjectReference key! optional?:bool",
    "FileKeySelector": "volumeName! path! key! optional?:bool",
    "ExecAction": "command:[string]",
    "HTTPGetAction": "path port!:IntOrString host scheme:URIScheme httpHeaders:[HTTPHeader]",
    "TCPSocketAction": "port!:IntOrString host",
    "GRPCAction": "port!:int32 service+",
    "SleepAction": "seconds!:int64",
    "HTTPHeader": "name! value!",
}

VOLUMES: Final[Mapping[str, str]] = {
    "Volume": "name! *VolumeSource",
    "VolumeSource": """
        hostPath?:HostPathVolumeSource emptyDir?:EmptyDirVolumeSource
        gcePersistentDisk?:GCEPersistentDiskVolumeSource
        awsElasticBlockStore?:AWSElasticBlockStoreVolumeSource gitRepo?:GitRepoVolumeSource
        secret?:SecretVolumeSource nfs?:NFSVolumeSource iscsi?:ISCSIVolumeSource
        glusterfs?:GlusterfsVolumeSource persistentVolumeClaim?:PersistentVolumeClaimVolumeSource
        rbd?:RBDVolumeSource flexVolume?:FlexVolumeSource cinder?:CinderVolumeSource
        cephfs?:CephFSVolumeSource flocker?:FlockerVolumeSource downwardAPI?:DownwardAPIVolumeSource
        fc?:FCVolumeSource azureFile?:AzureFileVolumeSource configMap?:ConfigMapVolumeSource
        vsphereVolume?:VsphereVirtualDiskVolumeSource quobyte?:QuobyteVolumeSource
        azureDisk?:AzureDiskVolumeSource photonPersistentDisk?:PhotonPersistentDiskVolumeSource
        projected?=26:ProjectedVolumeSource portworxVolume?=24:PortworxVolumeSource
        scaleIO?:ScaleIOVolumeSource storageos?=27:StorageOSVolumeSource csi?:CSIVolumeSource
        ephemeral?:EphemeralVolumeSource image?:ImageVolumeSource
    """,
    "HostPathVolumeSource": "path! type?:HostPathType",
    "EmptyDirVolumeSource": "medium:StorageMedium sizeLimit?:Quantity",
    "GCEPersistentDiskVolumeSource": "pdName! fsType partition:int32 readOnly:bool",
    "AWSElasticBlockStoreVolumeSource": "volumeID! fsType partition:int32 readOnly:bool",
    "GitRepoVolumeSource": "repository! revision directory",
    "SecretVolumeSource": "secretName items:[KeyToPath] defaultMode?:int32 optional?:bool",
    "NFSVolumeSource": "server! path! readOnly:bool",
    "ISCSIVolumeSource": """
        targetPortal! iqn! lun!:int32 iscsiInterface fsType readOnly:bool portals:[string]
        chapAuthDiscovery:bool chapAuthSession=11:bool secretRef?=10:LocalObjectReference initiatorName?=12
    """,
    "GlusterfsVolumeSource": "endpoints! path! readOnly:bool",
    "PersistentVolumeClaimVolumeSource": "claimName! readOnly:bool",
    "RBDVolumeSource": """
        monitors!:[string] image! fsType pool user keyring secretRef?:LocalObjectReference readOnly:bool
    """,
    "FlexVolumeSource": "driver! fsType secretRef?:LocalObjectReference readOnly:bool options:{string}",
    "CinderVolumeSource": "volumeID! fsType readOnly:bool secretRef?:LocalObjectReference",
    "CephFSVolumeSource": """
        monitors!:[string] path user secretFile secretRef?:LocalObjectReference readOnly:bool
    """,
    "FlockerVolumeSource": "datasetName datasetUUID",
    "DownwardAPIVolumeSource": "items:[DownwardAPIVolumeFile] defaultMode?:int32",
    "FCVolumeSource": "targetWWNs:[string] lun?:int32 fsType readOnly:bool wwids:[string]",
    "AzureFileVolumeSource": "secretName! shareName! readOnly:bool",
    "ConfigMapVolumeSource": "*LocalObjectReference items:[KeyToPath] defaultMode?:int32 optional?:bool",
    "VsphereVirtualDiskVolumeSource": "volumePath! fsType storagePolicyName storagePolicyID",
    "QuobyteVolumeSource": "registry! volume! readOnly:bool user group tenant",
    "AzureDiskVolumeSource": """
        diskName! diskURI! cachingMode?:AzureDataDiskCachingMode fsType? readOnly?:bool
        kind?:AzureDataDiskKind
    """,
    "PhotonPersistentDiskVolumeSource": "pdID! fsType",
    "ProjectedVolumeSource": "sources+:[VolumeProjection] defaultMode?:int32",
    "PortworxVolumeSource": "volumeID! fsType readOnly:bool",
    "ScaleIOVolumeSource": """
        gateway! system! secretRef!+:LocalObjectReference sslEnabled:bool protectionDomain storagePool
        storageMode volumeName fsType readOnly:bool
    """,
    "StorageOSVolumeSource": """
        volumeName volumeNamespace fsType readOnly:bool secretRef?:LocalObjectReference
    """,
    "CSIVolumeSource": """
        driver! readOnly?:bool fsType? volumeAttributes:{string} nodePublishSecretRef?:LocalObjectReference
    """,
    "EphemeralVolumeSource": "volumeClaimTemplate?:PersistentVolumeClaimTemplate",
    "ImageVolumeSource": "reference pullPolicy:PullPolicy",
    "KeyToPath": "key! path! mode?:int32",
    "DownwardAPIVolumeFile": """
        path! fieldRef?:ObjectFieldSelector resourceFieldRef?:ResourceFieldSelector mode?:int32
    """,
    "VolumeProjection": """
        secret?:SecretProjection downwardAPI?:DownwardAPIProjection configMap?:ConfigMapProjection
        serviceAccountToken?:ServiceAccountTokenProjection clusterTrustBundle?:ClusterTrustBundleProjection
        podCertificate?:PodCertificateProjection
    """,
    "PersistentVolumeClaimTemplate": "metadata:ObjectMeta spec!:PersistentVolumeClaimSpec",
    "ObjectFieldSelector": "apiVersion fieldPath!",
    "ResourceFieldSelector": "containerName resource! divisor:Quantity",
    "SecretProjection": "*LocalObjectReference items:[KeyToPath] optional?=4:bool",
    "DownwardAPIProjection": "items:[DownwardAPIVolumeFile]",
    "ConfigMapProjection": "*LocalObjectReference items:[KeyToPath] optional?=4:bool",
    "ServiceAccountTokenProjection": "audience expirationSeconds?:int64 path!",
    "ClusterTrustBundleProjection": "name? signerName? labelSelector?:LabelSelector optional?=5:bool path!=4",
    "PodCertificateProjection": """
        signerName!- keyType!- maxExpirationSeconds?:int32 credentialBundlePath keyPath certificateChainPath
        userAnnotations:{string}
    """,
    "PersistentVolumeClaimSpec": """
        accessModes:[PersistentVolumeAccessMode] selector?=4:LabelSelector
        resources=2:VolumeResourceRequirements volumeName storageClassName?=5 volumeMode?:PersistentVolumeMode
        dataSource?:TypedLocalObjectReference dataSourceRef?:TypedObjectReference volumeAttributesClassName?
    """,
    "VolumeResourceRequirements": "limits:ResourceList requests:ResourceList",
}

POD_STATUSES: Final[Mapping[str, str]] = {
    "PodStatus": """
        observedGeneration=17:int64 phase=1:PodPhase conditions:[PodCondition] message reason
        nominatedNodeName=11 hostIP=5 hostIPs=16:[HostIP] podIP=6 podIPs=12:[PodIP] startTime?=7:Time
        initContainerStatuses=10:[ContainerStatus] containerStatuses=8:[ContainerStatus] qosClass:PodQOSClass
        ephemeralContainerStatuses=13:[ContainerStatus] resize:PodResizeStatus
        resourceClaimStatuses:[PodResourceClaimStatus]
        extendedResourceClaimStatus?=18:PodExtendedResourceClaimStatus allocatedResources:ResourceList
        resources?:ResourceRequirements
        nodeAllocatableResourceClaimStatuses:[NodeAllocatableResourceClaimStatus]
    """,
    "PodCondition": """
        type!:PodConditionType observedGeneration=7:int64 status!=2:ConditionStatus lastProbeTime:Time
        lastTransitionTime:Time reason message
    """,
    "HostIP": "ip!",
    "PodIP": "ip!",
    "ContainerStatus": """
        name! state:ContainerState lastState:ContainerState ready!:bool restartCount!:int32 image! imageID!
        containerID started?:bool allocatedResources:ResourceList resources?:ResourceRequirements
        volumeMounts:[VolumeMountStatus] user?:ContainerUser allocatedResourcesStatus:[ResourceStatus]
        stopSignal?:Signal
    """,
    "PodResourceClaimStatus": "name! resourceClaimName?",
    "PodExtendedResourceClaimStatus": """
        requestMappings!:[ContainerExtendedResourceRequest] resourceClaimName!
    """,
    "NodeAllocatableResourceClaimStatus": "resourceClaimName! containers:[string] resources!:ResourceList",
    "ContainerState": """
        waiting?:ContainerStateWaiting running?:ContainerStateRunning terminated?:ContainerStateTerminated
    """,
    "VolumeMountStatus": """
        name! mountPath! readOnly:bool recursiveReadOnly?:RecursiveReadOnlyMode volumeStatus?:VolumeStatus
    """,
    "ContainerUser": "linux?:LinuxContainerUser",
    "ResourceStatus": "name!:ResourceName resources:[ResourceHealth]",
    "ContainerExtendedResourceRequest": "containerName! resourceName! requestName!",
    "ContainerStateWaiting": "reason message",
    "ContainerStateRunning": "startedAt:Time",
    "ContainerStateTerminated": """
        exitCode!:int32 signal:int32 reason message startedAt:Time finishedAt:Time containerID
    """,
    "VolumeStatus": "image?:ImageVolumeStatus",
    "LinuxContainerUser": "uid!:int64 gid!:int64 supplementalGroups:[int64]",
    "ResourceHealth": "resourceID!:ResourceID health:ResourceHealthStatus message?=6",
    "ImageVolumeStatus": "imageRef!-",
}
