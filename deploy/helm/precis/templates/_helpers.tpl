{{- define "precis.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name }}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- $name | trunc 45 | trimSuffix "-" }}
{{- end }}

{{- define "precis.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "precis.labels" -}}
{{ include "precis.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "precis.tokenSecret" -}}
{{ .Values.existingTokenSecret | default (printf "%s-tokens" (include "precis.name" .)) }}
{{- end }}

{{/* A value of JSON is one of TOML. */}}
{{- define "precis.toml" -}}
data_dir = "/var/lib/precis/data"
listen = "0.0.0.0:7470"
listen_unix = "/run/precis/precisd.sock"
{{- if .Values.tls.secretName }}
tls_cert = "/etc/precis/tls/tls.crt"
tls_key = "/etc/precis/tls/tls.key"
{{- if .Values.tls.clientCa }}
tls_client_ca = "/etc/precis/tls/ca.crt"
{{- end }}
{{- end }}
{{- range $key, $value := .Values.config }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- range .Values.tenants }}

[[tenant]]
name = {{ toJson .name }}
token_file = {{ printf "/etc/precis/tokens/%s" .name | toJson }}
{{- range $key, $value := omit . "name" "token" }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}
