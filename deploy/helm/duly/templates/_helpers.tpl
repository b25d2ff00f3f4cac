{{- define "duly.name" -}}
{{- $name := contains "duly" .Release.Name | ternary .Release.Name (printf "%s-duly" .Release.Name) }}
{{- $name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "duly.selector" -}}
app.kubernetes.io/name: duly
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
duly/pool: {{ . }}
{{- end }}
{{- end }}

{{- define "duly.labels" -}}
{{ include "duly.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* A pool with a repository of its own has its own tag or digest, too. */}}
{{- define "duly.image" -}}
{{- $image := .root.Values.image }}
{{- $tag := $image.tag | default .root.Chart.AppVersion }}
{{- with .image }}{{ if .repository }}
{{- $image = . }}
{{- $tag = .digest | default .tag | required "workers.*.image: give the tag or the digest of your repository" }}
{{- end }}{{ end }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ $tag }}{{ end }}
{{- end }}

{{/* What a pod of every role has: root, component, pool, args, env, more, resources, image, grace, ports, probes. */}}
{{- define "duly.pod" -}}
metadata:
  labels:
    {{- include "duly.labels" . | nindent 4 }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if not .job }}
  serviceAccountName: {{ include "duly.name" .root }}
  {{- end }}
  automountServiceAccountToken: false
  # A service named duly would set DULY_PORT.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .grace | default 30 }}
  {{- if .job }}
  restartPolicy: OnFailure
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "duly.selector" . | nindent 10 }}
  containers:
    - name: duly
      image: {{ include "duly.image" . }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      env:
        - {name: DULY_DATABASE_URL_FILE, value: /run/duly/database/url}
        - {name: DULY_SECRETS_KEY, value: /run/duly/keyring/keyring}
        - {name: DULY_METRICS_HOST, value: 0.0.0.0}
        - {name: DULY_METRICS_PORT, value: "9300"}
        {{- range $name, $value := .root.Values.settings }}
        - {name: {{ printf "DULY_%s" (upper $name) }}, value: {{ $value | toString | quote }}}
        {{- end }}
        {{- range .more }}
        - {name: {{ .name }}, value: {{ .value | quote }}}
        {{- end }}
        {{- with .env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if not .job }}
      ports:
        - {name: metrics, containerPort: 9300}
        {{- if eq .component "api" }}
        - {name: http, containerPort: 7300}
        {{- end }}
      startupProbe:
        httpGet: {path: /livez, port: metrics}
        periodSeconds: 2
        timeoutSeconds: 4
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /livez, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 4
        failureThreshold: 6
      # The API takes work while schedulers are down, so its readiness is its own. A worker is ready when it is registered.
      readinessProbe:
        httpGet: {path: {{ if eq .component "api" }}/livez{{ else }}/readyz{{ end }}, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 4
        failureThreshold: 3
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: database, mountPath: /run/duly/database, readOnly: true}
        - {name: keyring, mountPath: /run/duly/keyring, readOnly: true}
        {{- if .tls }}
        - {name: tls, mountPath: /run/duly/tls, readOnly: true}
        {{- end }}
  volumes:
    - {name: tmp, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
    - name: database
      secret:
        secretName: {{ required "database.existingSecret: name the secret that has the address of your PostgreSQL" .root.Values.database.existingSecret }}
        defaultMode: 0440
        items: [{key: {{ .root.Values.database.key }}, path: url}]
    - name: keyring
      secret:
        secretName: {{ required "keyring.existingSecret: name the secret that has the line of `duly secrets new-key`" .root.Values.keyring.existingSecret }}
        defaultMode: 0440
        items: [{key: {{ .root.Values.keyring.key }}, path: keyring}]
    {{- with .tls }}
    - name: tls
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
{{- end }}

{{/* A Deployment of a role; without replicas an autoscaler decides. */}}
{{- define "duly.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "duly.name" .root }}-{{ .name }}
  labels:
    {{- include "duly.labels" . | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels:
      {{- include "duly.selector" . | nindent 6 }}
  template:
    {{- include "duly.pod" . | nindent 4 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "duly.name" .root }}-{{ .name }}
  labels:
    {{- include "duly.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "duly.selector" . | nindent 6 }}
{{- end }}
