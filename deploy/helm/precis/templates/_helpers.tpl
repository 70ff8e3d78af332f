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

{{/* The name of the Service in DNS; a pod's is its own name before it. */}}
{{- define "precis.domain" -}}
{{ include "precis.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "precis.antiAffinity" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" }}
{{- $_ := set $term "labelSelector" (dict "matchLabels" (include "precis.selector" . | fromYaml)) }}
podAntiAffinity:
{{- if eq .Values.cluster.antiAffinity "required" }}
  requiredDuringSchedulingIgnoredDuringExecution: {{ list $term | toJson }}
{{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    {{- list (dict "weight" 100 "podAffinityTerm" $term) | toYaml | nindent 4 }}
{{- end }}
{{- end }}

{{- define "precis.tokenSecret" -}}
{{ .Values.existingTokenSecret | default (printf "%s-tokens" (include "precis.name" .)) }}
{{- end }}

{{- define "precis.clusterName" -}}
{{- $name := .Values.cluster.name | default (printf "%s.%s" .Release.Namespace (include "precis.name" .)) }}
{{- if gt (len $name) 63 }}{{ fail (printf "cluster.name: '%s' has more than 63 characters; set a shorter one" $name) }}{{ end }}
{{- $name }}
{{- end }}

{{/* The settings that all nodes of the cluster have in common. */}}
{{- define "precis.clusterToml" -}}
cluster_etcd = {{ join "," .Values.cluster.etcd.endpoints | toJson }}
{{- with .Values.cluster.etcd.tls }}
{{- if .secretName }}
cluster_tls_ca = "/etc/precis/etcd/ca.crt"
{{- if .clientCertificate }}
cluster_tls_cert = "/etc/precis/etcd/tls.crt"
cluster_tls_key = "/etc/precis/etcd/tls.key"
{{- end }}
{{- end }}
{{- end }}
cluster_name = {{ include "precis.clusterName" . | toJson }}
cluster_weight = {{ .Values.cluster.weight }}
cluster_lease_s = {{ .Values.cluster.leaseSeconds }}
{{- with .Values.cluster.ceph }}
{{- if .secretName }}
cluster_ceph_conf = "/etc/ceph/ceph.conf"
cluster_ceph_user = {{ toJson .user }}
cluster_ceph_pool = {{ toJson .pool }}
{{- end }}
{{- end }}
{{- with .Values.cluster.s3 }}
{{- if .url }}
cluster_s3 = {{ toJson .url }}
cluster_s3_keys = "/etc/precis/s3/keys"
cluster_s3_region = {{ toJson .region }}
{{- if .tls.secretName }}
cluster_s3_ca = "/etc/precis/s3/ca.crt"
{{- end }}
{{- end }}
{{- end }}
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
{{- if .Values.cluster.enabled }}
{{ include "precis.clusterToml" . }}
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
