{{- define "opwatch.labels" -}}
app.kubernetes.io/name: opwatch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "opwatch.selector" -}}
app.kubernetes.io/name: opwatch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "opwatch.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
