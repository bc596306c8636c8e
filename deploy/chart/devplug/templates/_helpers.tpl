{{- /* Names, labels and the image, each written once; and what is refused. */}}

{{- define "devplug.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "devplug.fullname" -}}
{{- $name := include "devplug.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "devplug.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- /* Roles of the cluster have no namespace, and two releases may have one name. */}}
{{- define "devplug.roleName" -}}
{{- printf "%s-%s" (include "devplug.namespace" .) (include "devplug.fullname" .) -}}
{{- end -}}

{{- define "devplug.serviceAccountName" -}}
{{- default (ternary (include "devplug.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "devplug.configMapName" -}}
{{- default (include "devplug.fullname" .) .Values.config.existingConfigMap -}}
{{- end -}}

{{- define "devplug.configKey" -}}
{{- ternary .Values.config.key "config.yaml" (not (empty .Values.config.existingConfigMap)) -}}
{{- end -}}

{{- /* Labels of our pods that never change: a DaemonSet's selector cannot. */}}
{{- define "devplug.selectorLabels" -}}
app.kubernetes.io/name: {{ include "devplug.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "devplug.labels" -}}
{{ include "devplug.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: device-plugin
app.kubernetes.io/part-of: {{ include "devplug.name" . | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end -}}

{{- /* How a monitor reads the metrics; asked with podMonitor or serviceMonitor. */}}
{{- define "devplug.endpoint" -}}
port: http
path: /metrics
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
honorLabels: {{ .honorLabels }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Whether the pod asks the API server, and needs a token: "true" or nothing. */}}
{{- define "devplug.asksApi" -}}
{{- if or .Values.nodeLabels.enabled .Values.kubeEvents.enabled .Values.dra.enabled }}true{{ end -}}
{{- end -}}

{{- /* The kubelet's folder as the container has it. A DRA driver tells the kubelet the whole path of its socket. */}}
{{- define "devplug.kubeletRoot" -}}
{{- ternary .Values.kubeletRoot "/var/lib/kubelet" .Values.dra.enabled -}}
{{- end -}}

{{- define "devplug.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Fails where the configuration needs what the values do not grant, as far as its text shows that. */}}
{{- define "devplug.check" -}}
{{- $how := "devplug manifests --format chart-values -c FILE prints the values that a configuration needs" -}}
{{- if and .Values.config.inline .Values.config.existingConfigMap -}}
{{- fail "config.inline and config.existingConfigMap are both set; set config.inline to \"\" to use the ConfigMap" -}}
{{- end -}}
{{- if .Values.dra.enabled -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .Values.dra.driver) -}}
{{- fail (printf "dra.driver is %q, which is no driver's name; dra.enabled needs the configuration's `driver`, such as devices.example.com" .Values.dra.driver) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.config.inline .Values.config.existingConfigMap) -}}
{{- fail "no configuration: --set-file config.inline=devplug.yaml, or set config.existingConfigMap" -}}
{{- end -}}
{{- $config := fromYaml .Values.config.inline -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config.inline is no YAML map: %s" $config.Error) -}}
{{- end -}}
{{- if and .Values.dra.enabled $config.driver (ne (toString $config.driver) .Values.dra.driver) -}}
{{- fail (printf "dra.driver is %q, and config.inline has driver: %v; both are one name" .Values.dra.driver $config.driver) -}}
{{- end -}}
{{- if kindIs "slice" $config.resources -}}
{{- range $index, $resource := $config.resources -}}
{{- if kindIs "map" $resource -}}
{{- $needed := list -}}
{{- if and (kindIs "map" $resource.expose) (not $.Values.cdi.enabled) -}}
{{- if eq (toString $resource.expose.strategy) "cdi" -}}
{{- $needed = append $needed "expose.strategy needs cdi.enabled=true" -}}
{{- end -}}
{{- end -}}
{{- if and (kindIs "slice" $resource.health) (not $.Values.deviceAccess.enabled) -}}
{{- range $rule := $resource.health -}}
{{- if and (kindIs "map" $rule) (dig "open" false $rule) -}}
{{- $needed = append $needed "health needs deviceAccess.enabled=true to open devices" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq (toString $resource.serve) "dra") (not $.Values.dra.enabled) -}}
{{- $needed = append $needed "serve needs dra.enabled=true, with dra.driver and dra.classes" -}}
{{- end -}}
{{- if and $resource.nodeSelector (not $.Values.nodeLabels.enabled) -}}
{{- $needed = append $needed "nodeSelector needs nodeLabels.enabled=true" -}}
{{- end -}}
{{- if kindIs "map" $resource.discover -}}
{{- if and $resource.discover.net (not $.Values.hostNetwork) -}}
{{- $needed = append $needed "discover.net needs hostNetwork=true" -}}
{{- end -}}
{{- if and $resource.discover.nvidia (not $.Values.nvidia.enabled) -}}
{{- $needed = append $needed "discover.nvidia needs nvidia.enabled=true, and a runtimeClassName" -}}
{{- end -}}
{{- end -}}
{{- if $needed -}}
{{- fail (printf "config.inline: resources[%d].%s; %s" $index (first $needed) $how) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
