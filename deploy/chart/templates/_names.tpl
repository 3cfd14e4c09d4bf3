{{- define "provisor.account" -}}
{{- .Values.serviceAccount.name | default .Release.Name -}}
{{- end -}}

{{/* What the program names its lease and its record by. */}}
{{- define "provisor.owner" -}}
{{- printf "%s.%s" .Values.installation .Values.source.environment -}}
{{- end -}}

{{- define "provisor.selector" -}}
app.kubernetes.io/name: provisor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "provisor.labels" -}}
{{ include "provisor.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
