{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "ringmaster.labels" -}}
app.kubernetes.io/name: hvd-operator
app.kubernetes.io/part-of: ringmaster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Where the operator's rights hold: the namespace served, when there is one. */ -}}
{{- define "ringmaster.served" -}}
{{- .Values.watchNamespace | default (ternary .Release.Namespace "" .Values.rbac.namespaced) -}}
{{- end -}}

{{- /* Options of hvd-operator, as items of a list; "" if there are none. */ -}}
{{- define "ringmaster.options" -}}
{{- $options := list -}}
{{- with include "ringmaster.served" . }}{{ $options = append $options (print "--namespace=" .) }}{{ end -}}
{{- with .Values.gangScheduler }}{{ $options = append $options (print "--gang-scheduling=" .) }}{{ end -}}
{{- with .Values.clusterDomain }}{{ $options = append $options (print "--cluster-domain=" .) }}{{ end -}}
{{- if not .Values.leaderElection }}{{ $options = append $options "--leader-elect=false" }}{{ end -}}
{{- with .Values.logLevel }}{{ $options = append $options (print "--log-level=" .) }}{{ end -}}
{{- if .Values.logJson }}{{ $options = append $options "--log-json" }}{{ end -}}
{{- with .Values.page }}{{ if .enabled -}}
{{- $options = append $options (print "--page=" (int .port)) -}}
{{- with .address }}{{ $options = append $options (print "--page-address=" .) }}{{ end -}}
{{- end }}{{ end -}}
{{- if (.Values.webhook).secretName }}{{ $options = append $options "--webhook-dir=/etc/hvd-webhook" }}{{ end -}}
{{- with concat $options (.Values.extraArgs | default list) }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* A role of files/ with rules as they are there. (list $ FILE NAME KIND NAMESPACE) */ -}}
{{- define "ringmaster.role" -}}
{{- $top := index . 0 -}}
{{- $file := $top.Files.Get (index . 1) | fromYaml -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 3 }}
metadata:
  name: {{ index . 2 }}
  {{- with index . 4 }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "ringmaster.labels" $top | nindent 4 }}
    {{- range $key, $value := $file.metadata.labels }}
    {{- if hasPrefix "rbac.authorization." $key }}
    {{ $key }}: {{ $value | quote }}
    {{- end }}
    {{- end }}
rules:
  {{- toYaml $file.rules | nindent 2 }}
{{- end -}}

{{- /* (list $ NAME KIND-OF-THE-ROLE NAMESPACE ACCOUNT) */ -}}
{{- define "ringmaster.binding" -}}
{{- $top := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 2 }}Binding
metadata:
  name: {{ index . 1 }}
  {{- with index . 3 }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "ringmaster.labels" $top | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 2 }}
  name: {{ index . 1 }}
subjects:
- kind: ServiceAccount
  name: {{ index . 4 }}
  namespace: {{ $top.Release.Namespace }}
{{- end -}}
