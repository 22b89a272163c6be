#!/usr/bin/env bash
# kube-up.sh - a REAL one-machine Kubernetes 1.34 on Debian 12: etcd, kube-apiserver,
# controller-manager, scheduler, kubelet + containerd + runc (pods really run), kube-proxy,
# CoreDNS, and the operators a training job meets, from their own manifests with their
# webhooks on: training-operator 1.9.4 (PyTorchJob), JobSet 0.12.0, Trainer 2.3.0 (TrainJob),
# Kueue 0.17.0. Everything is built from the Go module proxy or comes from Debian's packages.
# Needs root and go >= 1.26. All addresses are on a bridge made here (10.87.0.0/24).
# Idempotent: a second call returns at once when healthy, and mends what has died. Tear down: kube-down.sh [--purge]
# Nothing is written into the clone: state and images go to JG_KUBE_ROOT, Go's modules and builds to its own caches.
#
#   JG_KUBE_ROOT=/var/lib/jgkube       state, binaries, images, logs
#   JG_OPERATORS="training-operator"   any of: training-operator jobset trainer kueue (trainer needs jobset)
#   JG_GPUS=16                         nvidia.com/gpu that the real node advertises (no GPU is there)
#   JG_RDMA="rdma/rdma_shared_device_a=32 vpc.amazonaws.com/efa=32"   further extended resources
#   JG_FAKE_NODES=0                    kwok nodes (8 GPUs, 192 CPUs, 2 TiB each, label type=kwok): pods there only pretend
#   JG_FRESH=1                         wipe cluster state first (keeps binaries and images)
set -euo pipefail
: "${JG_KUBE_ROOT:=/var/lib/jgkube}" "${JG_OPERATORS:=training-operator}" "${JG_GPUS:=16}" "${JG_FAKE_NODES:=0}" "${JG_FRESH:=0}"
: "${JG_RDMA:=rdma/rdma_shared_device_a=32 vpc.amazonaws.com/efa=32}"
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
R=$JG_KUBE_ROOT; BIN=$R/bin; LOG=$R/log; RUN=$R/run; PKI=$R/pki; SOCK=$RUN/containerd.sock
KUBE=1.34.4 COREDNS=v1.14.7 TRAINING_OPERATOR=v1.9.4 JOBSET=v0.12.0 TRAINER=v2.3.0 KUEUE=v0.17.0 KWOK=v0.8.0
IP=10.87.0.1 BR=jgkube0; API=https://$IP:6443
T0=$(date +%s.%N)
say() { printf '[%6.1fs] %s\n' "$(awk -v a="$(date +%s.%N)" -v b="$T0" 'BEGIN{print a-b}')" "$*" >&2; }
die() { echo "kube-up: $*" >&2; exit 1; }
alive() { local p; p=$(cat "$RUN/$1.pid" 2>/dev/null) || return 1; [ -n "$p" ] && [ -d "/proc/$p" ] && ! grep -q '^State:.*[ZX]' "/proc/$p/status"; }
wait_for() { local end=$(( $(date +%s) + $1 )) what=$2; shift 2; while ! "$@" >/dev/null 2>&1; do [ "$(date +%s)" -lt $end ] || die "timeout waiting for $what (logs: $LOG)"; sleep 0.2; done; }
start() { local n=$1; shift; alive "$n" && return 0; setsid "$@" >"$LOG/$n.log" 2>&1 < /dev/null & echo $! > "$RUN/$n.pid"; }
[ "$(id -u)" = 0 ] || die "run as root"
command -v go >/dev/null || die "needs go >= 1.26"
mkdir -p "$BIN" "$LOG" "$RUN" "$PKI" "$R/build" "$R/images" "$R/net.d"
export KUBECONFIG=$R/kubeconfig PATH=$BIN:$PATH
healthy() {
  local n; for n in etcd containerd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy coredns; do alive $n || return 1; done
  [ "$JG_FAKE_NODES" = 0 ] || alive kwok || return 1
  kubectl get --raw /readyz && [ "$(cat "$R/up" 2>/dev/null)" = "$JG_OPERATORS $JG_FAKE_NODES" ]
}
if [ "$JG_FRESH" != 1 ] && healthy >/dev/null 2>&1; then say "already up"; exit 0; fi
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "$JG_FRESH" = 1 ]; then JG_KUBE_ROOT=$R "$HERE/kube-down.sh" --state; mkdir -p "$LOG" "$RUN" "$PKI" "$R/net.d"; fi
rm -f "$R/up"

# ---- 1. Debian packages
want="etcd-server:/usr/bin/etcd containerd:/usr/bin/containerd runc:/usr/sbin/runc containernetworking-plugins:/usr/lib/cni/bridge iptables:/usr/sbin/iptables conntrack:/usr/sbin/conntrack iproute2:/usr/sbin/ip openssl:/usr/bin/openssl debootstrap:/usr/sbin/debootstrap ca-certificates:/etc/ssl/certs/ca-certificates.crt"
need=(); for w in $want; do [ -e "${w#*:}" ] || need+=("${w%%:*}"); done
if [ ${#need[@]} -gt 0 ]; then
  say "apt-get install ${need[*]}"
  pol=; if [ ! -e /usr/sbin/policy-rc.d ]; then printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; pol=1; fi
  { apt-get install -y -q --no-install-recommends "${need[@]}" || { apt-get update -q && apt-get install -y -q --no-install-recommends "${need[@]}"; }; } >"$LOG/apt.log" 2>&1 || { tail -20 "$LOG/apt.log"; die "apt failed"; }
  if [ -n "$pol" ]; then rm -f /usr/sbin/policy-rc.d; fi
fi

# ---- 2. binaries (built once, kept in $BIN)
module() { # name, module, version, package, ldflags, [replace lines]
  [ -x "$BIN/$1" ] && return 0
  local d=$R/build/$1; mkdir -p "$d"; say "go build $1"
  printf 'module cluster\ngo 1.26.0\nrequire %s %s\n%s\n' "$2" "$3" "${6:-}" > "$d/go.mod"
  printf '//go:build tools\npackage cluster\nimport _ "%s"\n' "$4" > "$d/tools.go"
  (cd "$d" && go mod tidy && CGO_ENABLED=0 nice go build -trimpath -ldflags "-s -w $5" -o "$BIN/$1" "$4") >"$LOG/build-$1.log" 2>&1 || { tail -5 "$LOG/build-$1.log"; die "go build $1 failed"; }
}
staging=; for m in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver; do
  staging+="replace k8s.io/$m => k8s.io/$m v0.${KUBE#1.}"$'\n'; done
v=k8s.io/component-base/version; kv="-X $v.gitVersion=v$KUBE -X $v.gitMajor=1 -X $v.gitMinor=${KUBE:2:2}"
for c in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do module $c k8s.io/kubernetes v$KUBE k8s.io/kubernetes/cmd/$c "$kv" "$staging"; done
if [ ! -x "$BIN/coredns" ]; then   # only its kubernetes plugin: the stock build pulls in every cloud's SDK
  say "go build coredns"; d=$R/build/coredns; mkdir -p "$d"; printf 'module cluster\ngo 1.26.0\nrequire github.com/coredns/coredns %s\n' $COREDNS > "$d/go.mod"
  printf 'package main\nimport (\n"github.com/coredns/coredns/core/dnsserver"\n"github.com/coredns/coredns/coremain"\n_ "github.com/coredns/coredns/plugin/bind"\n_ "github.com/coredns/coredns/plugin/kubernetes"\n)\nfunc main() { dnsserver.Directives = []string{"bind", "kubernetes"}; coremain.Run() }\n' > "$d/main.go"
  (cd "$d" && go mod tidy && CGO_ENABLED=0 nice go build -trimpath -ldflags "-s -w" -o "$BIN/coredns" .) >"$LOG/build-coredns.log" 2>&1 || { tail -5 "$LOG/build-coredns.log"; die "go build coredns failed"; }
fi
for o in $JG_OPERATORS; do case $o in
  training-operator) module $o github.com/kubeflow/training-operator $TRAINING_OPERATOR github.com/kubeflow/training-operator/cmd/training-operator.v1 "";;
  jobset) module $o sigs.k8s.io/jobset $JOBSET sigs.k8s.io/jobset "";;
  trainer) module $o github.com/kubeflow/trainer/v2 $TRAINER github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager "";;
  kueue) module $o sigs.k8s.io/kueue $KUEUE sigs.k8s.io/kueue/cmd/kueue "";;
  *) die "unknown operator $o";; esac; done
[ "$JG_FAKE_NODES" = 0 ] || module kwok sigs.k8s.io/kwok $KWOK sigs.k8s.io/kwok/cmd/kwok ""
moddir() { (cd "$R/build/$1" && go list -m -f '{{.Dir}}' "$2"); }   # where a module's manifests are

# ---- 3. images (packed once): pause, one per operator, and localhost/train:1 = Debian + python3 + torch (CPU, gloo)
image() { # rootfs, name, out.tar, user, entrypoint...
  python3 - "$@" <<'PY'
import hashlib, io, json, os, subprocess, sys, tarfile
root, name, out, user, *entry = sys.argv[1:]
layer, digest = out + ".layer", hashlib.sha256()
subprocess.run(["tar", "-C", root, "--numeric-owner", "-cf", layer, "."], check=True)
with open(layer, "rb") as f:
    while block := f.read(1 << 20):
        digest.update(block)
config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest.hexdigest()]},
          "config": {"Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "User": user, "Entrypoint": entry or None}}
with tarfile.open(out + ".part", "w") as t:
    def add(n, b):
        i = tarfile.TarInfo(n); i.size = len(b); t.addfile(i, io.BytesIO(b))
    t.add(layer, "layer.tar"); add("config.json", json.dumps(config).encode())
    add("manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode())
os.unlink(layer); os.replace(out + ".part", out)
PY
}
binary_image() { # binary, name, path
  [ -s "$R/images/$1.tar" ] && return 0; local d; d=$(mktemp -d); mkdir -p "$d/tmp"; chmod 1777 "$d/tmp"; cp "$BIN/$1" "$d$3"
  image "$d" "$2" "$R/images/$1.tar" "65532:65532" "$3"; rm -rf "$d"; }
if [ ! -s "$R/images/pause.tar" ]; then
  d=$(mktemp -d); mkdir "$R/build/pause" 2>/dev/null || true
  printf 'package main\nimport ("os";"os/signal";"syscall")\nfunc main(){c:=make(chan os.Signal,1);signal.Notify(c,syscall.SIGINT,syscall.SIGTERM,syscall.SIGCHLD);for s:=range c{if s!=syscall.SIGCHLD{return};for{var w syscall.WaitStatus;if p,_:=syscall.Wait4(-1,&w,syscall.WNOHANG,nil);p<=0{break}}}}\n' > "$R/build/pause/main.go"
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$d/pause" "$R/build/pause/main.go"; image "$d" localhost/pause:1 "$R/images/pause.tar" "" /pause; rm -rf "$d"; fi
if [ ! -s "$R/images/train.tar" ]; then
  say "debootstrap localhost/train:1 (python3, torch)"; d=$R/build/train; rm -rf "$d"
  debootstrap --variant=minbase --include=python3-torch bookworm "$d" >"$LOG/debootstrap.log" 2>&1 || { tail -5 "$LOG/debootstrap.log"; die "debootstrap failed"; }
  rm -rf "$d"/var/cache/apt/* "$d"/var/lib/apt/lists/* "$d"/usr/share/doc "$d"/usr/include "$d"/usr/share/locale
  # torch 1.13 on Python 3.11: iterating a Flag leaves out Std.NONE, so torchrun's default --redirects=0 becomes None
  sed -i 's/for s in Std:/for s in Std.__members__.values():/' "$d/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py"
  printf '#!/bin/sh\nexec getent hosts "$1"\n' > "$d/usr/local/bin/nslookup"; chmod +x "$d/usr/local/bin/nslookup"   # what PyTorchJob's init container calls
  printf '#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n' > "$d/usr/local/bin/torchrun"; chmod +x "$d/usr/local/bin/torchrun"; ln -sf python3 "$d/usr/bin/python"
  image "$d" localhost/train:1 "$R/images/train.tar" ""; rm -rf "$d"; fi

# ---- 4. network, keys, kubeconfig
ip link show $BR >/dev/null 2>&1 || { ip link add $BR type bridge; ip addr add $IP/24 dev $BR; ip link set $BR up; }
sysctl -qw net.ipv4.ip_forward=1; grep -q "^$IP jgkube-node" /etc/hosts || echo "$IP jgkube-node" >> /etc/hosts
cat > "$R/net.d/10.conflist" <<Y
{"cniVersion":"0.4.0","name":"jgkube","plugins":[{"type":"bridge","bridge":"$BR","isGateway":true,"ipMasq":false,"hairpinMode":true,"ipam":{"type":"host-local","dataDir":"$R/cni","ranges":[[{"subnet":"10.87.0.0/24","rangeStart":"10.87.0.10"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}
Y
if [ ! -f "$PKI/admin.crt" ]; then (cd "$PKI"
  openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=jgkube-ca -keyout ca.key -out ca.crt; openssl genrsa -out sa.key 2048; openssl rsa -in sa.key -pubout -out sa.pub
  cert() { openssl req -newkey rsa:2048 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr"; openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile <(echo "subjectAltName=$3") -out "$1.crt"; }
  cert apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default.svc,IP:$IP,IP:10.96.0.1,IP:127.0.0.1"; cert admin "/O=system:masters/CN=admin" DNS:admin) >/dev/null 2>&1; fi
kubectl config --kubeconfig="$KUBECONFIG" set-cluster jgkube --server=$API --certificate-authority="$PKI/ca.crt" --embed-certs >/dev/null
kubectl config --kubeconfig="$KUBECONFIG" set-credentials admin --client-certificate="$PKI/admin.crt" --client-key="$PKI/admin.key" --embed-certs >/dev/null
kubectl config --kubeconfig="$KUBECONFIG" set-context jgkube --cluster=jgkube --user=admin >/dev/null; kubectl config --kubeconfig="$KUBECONFIG" use-context jgkube >/dev/null; chmod 600 "$KUBECONFIG"

# ---- 5. control plane and node
# restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower oom_score_adj (-998 of a sandbox)
cat > "$R/containerd.toml" <<Y
version = 2
root = "$R/containerd"
state = "$RUN/containerd"
[grpc]
  address = "$SOCK"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$R/net.d"
Y
cat > "$R/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $IP
readOnlyPort: 0
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://$SOCK
clusterDNS: [$IP]
clusterDomain: cluster.local
resolvConf: ""
evictionHard: {memory.available: "1Mi", nodefs.available: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
podLogsDir: $LOG/pods
localStorageCapacityIsolation: false
maxPods: 100
syncFrequency: 3s
Y
printf 'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nbindAddress: %s\nhealthzBindAddress: ""\nmetricsBindAddress: ""\nhostnameOverride: jgkube-node\nmode: iptables\nclusterCIDR: 10.87.0.0/24\nconntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\nclientConnection: {kubeconfig: %s}\n' $IP "$KUBECONFIG" > "$R/proxy.yaml"
printf 'cluster.local:53 in-addr.arpa:53 {\n  bind %s\n  kubernetes cluster.local in-addr.arpa {\n    endpoint %s\n    kubeconfig %s jgkube\n  }\n}\n' $IP $API "$KUBECONFIG" > "$R/Corefile"
start etcd etcd --data-dir "$R/etcd" --listen-client-urls http://127.0.0.1:22379 --advertise-client-urls http://127.0.0.1:22379 --listen-peer-urls http://127.0.0.1:22380 --initial-advertise-peer-urls http://127.0.0.1:22380 --initial-cluster default=http://127.0.0.1:22380
start containerd containerd -c "$R/containerd.toml"
start kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:22379 --bind-address=$IP --advertise-address=$IP --secure-port=6443 --service-cluster-ip-range=10.96.0.0/16 --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" --service-account-issuer=https://kubernetes.default.svc --authorization-mode=Node,RBAC --allow-privileged=true --kubelet-client-certificate="$PKI/admin.crt" --kubelet-client-key="$PKI/admin.key"
wait_for 60 kube-apiserver kubectl get --raw /readyz
start kube-controller-manager kube-controller-manager --kubeconfig="$KUBECONFIG" --service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" --leader-elect=false --bind-address=127.0.0.1
start kube-scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1
wait_for 20 containerd ctr -a "$SOCK" version
load() { # image file, name: imported when it is new or was packed anew
  local mark="$R/containerd/.$1"; [ "$mark" -nt "$R/images/$1.tar" ] && ctr -a "$SOCK" -n k8s.io images ls -q | grep -qxF "$2" && return 0
  ctr -a "$SOCK" -n k8s.io images import "$R/images/$1.tar" >/dev/null && touch "$mark"; }
load pause localhost/pause:1
start kubelet kubelet --config="$R/kubelet.yaml" --kubeconfig="$KUBECONFIG" --root-dir="$R/kubelet" --hostname-override=jgkube-node --node-ip=$IP
start kube-proxy kube-proxy --config="$R/proxy.yaml"
start coredns coredns -conf "$R/Corefile"
load train localhost/train:1
ctr -a "$SOCK" -n k8s.io images tag --force localhost/train:1 docker.io/library/alpine:3.10 >/dev/null   # the image of PyTorchJob workers' init container
wait_for 60 "node" kubectl wait --for=condition=Ready node/jgkube-node --timeout=1s
cap="\"nvidia.com/gpu\":\"$JG_GPUS\""; for r in $JG_RDMA; do cap+=",\"${r%%=*}\":\"${r##*=}\""; done
kubectl patch node jgkube-node --subresource=status --type=merge -p "{\"status\":{\"capacity\":{$cap},\"allocatable\":{$cap}}}" >/dev/null
say "control plane and node ready"
# storage class "shared": 20 ReadWriteMany volumes on hostPath, Delete-able by hand (kubectl patch pv shared-N -p '{"spec":{"claimRef":null}}' reuses one)
{ printf 'apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: shared}\nprovisioner: kubernetes.io/no-provisioner\nvolumeBindingMode: Immediate\n'
  for i in $(seq 20); do printf -- '---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: shared-%s}\nspec: {capacity: {storage: 100Ti}, accessModes: [ReadWriteMany, ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, storageClassName: shared, hostPath: {path: %s/volumes/shared-%s, type: DirectoryOrCreate}}\n' "$i" "$R" "$i"; done; } | kubectl apply -f - >/dev/null

# volumes whose claim was deleted are emptied and free again
for v in $(kubectl get pv -o 'jsonpath={range .items[?(@.status.phase=="Released")]}{.metadata.name}{"\n"}{end}'); do
  rm -rf "${R:?}/volumes/$v"; kubectl patch pv "$v" --type=merge -p '{"spec":{"claimRef":null}}' >/dev/null; done
# The PodGroups of other gang schedulers: coscheduling's from its module; Volcano's module is not on the proxy, so a
# stand-in with the fields that jobgen writes. No such scheduler runs here: only the API takes the objects.
podgroups() {
  cat "$(moddir trainer sigs.k8s.io/scheduler-plugins)/config/crd/bases/scheduling.x-k8s.io_podgroups.yaml"
  cat <<'Y'
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podgroups.scheduling.volcano.sh}
spec:
  group: scheduling.volcano.sh
  scope: Namespaced
  names: {kind: PodGroup, plural: podgroups, singular: podgroup}
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                minMember: {type: integer, format: int32}
                queue: {type: string}
                priorityClassName: {type: string}
                minResources: {type: object, additionalProperties: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
Y
}

# ---- 6. operators, from their own manifests
ready() { kubectl -n "$1" rollout status "deployment/$2" --timeout=1s; }
cert_ready() { [ -n "$(kubectl get "$1" "$2" -o 'jsonpath={.webhooks[0].clientConfig.caBundle}')" ]; }
for o in $JG_OPERATORS; do case $o in
  training-operator) d=$(moddir $o github.com/kubeflow/training-operator)
    img=$(kubectl kustomize "$d/manifests/overlays/standalone" | awk '/image: .*training-operator/{print $2;exit}'); binary_image $o "$img" /manager; load $o "$img"
    kubectl kustomize "$d/manifests/overlays/standalone" | kubectl apply --server-side --force-conflicts -f - >"$LOG/apply-$o.log"
    wait_for 120 $o ready kubeflow training-operator; wait_for 60 "$o webhook" cert_ready validatingwebhookconfiguration validator.training-operator.kubeflow.org;;
  jobset) d=$(moddir $o sigs.k8s.io/jobset); binary_image $o localhost/jobset:1 /manager; load $o localhost/jobset:1
    kubectl kustomize "$d/config/default" | sed 's#image: .*jobset.*#image: localhost/jobset:1#; s#image: controller:latest#image: localhost/jobset:1#' | kubectl apply --server-side --force-conflicts -f - >"$LOG/apply-$o.log"
    wait_for 120 $o ready jobset-system jobset-controller-manager;;
  trainer) podgroups | kubectl apply --server-side --force-conflicts -f - >"$LOG/apply-podgroups.log"
    d=$(moddir $o github.com/kubeflow/trainer/v2); binary_image $o localhost/trainer:1 /manager; load $o localhost/trainer:1
    t=$(mktemp -d); cp -r "$d/manifests" "$t/"; chmod -R u+w "$t"; sed -i '/third-party\/jobset/d' "$t/manifests/overlays/manager/kustomization.yaml"
    kubectl kustomize "$t/manifests/overlays/manager" | sed 's#image: .*trainer-controller-manager.*#image: localhost/trainer:1#' | kubectl apply --server-side --force-conflicts -f - >"$LOG/apply-$o.log"; rm -rf "$t"
    wait_for 120 $o ready kubeflow-system kubeflow-trainer-controller-manager;;
  kueue) d=$(moddir $o sigs.k8s.io/kueue); binary_image $o localhost/kueue:1 /manager; load $o localhost/kueue:1
    kubectl kustomize "$d/config/default" | sed -E 's#image: .*kueue.*#image: localhost/kueue:1#; s#image: controller:latest#image: localhost/kueue:1#; s#imagePullPolicy: Always#imagePullPolicy: IfNotPresent#' | kubectl apply --server-side --force-conflicts -f - >"$LOG/apply-$o.log"
    # Its visibility API needs the API server's front-proxy certificates, which are not made here; an API that is announced
    # and does not answer keeps every deleted namespace Terminating for ever.
    kubectl get apiservices -o name | { grep -F .visibility.kueue.x-k8s.io || true; } | xargs -r kubectl delete >/dev/null
    wait_for 180 $o ready kueue-system kueue-controller-manager;;
  esac; say "$o ready"; done
# ---- 7. fake nodes (tainted: only pods that tolerate kwok.x-k8s.io/node go there)
if [ "$JG_FAKE_NODES" != 0 ]; then
  d=$(moddir kwok sigs.k8s.io/kwok)/kustomize/stage; stages=(); for f in "$d"/node/fast/*.yaml "$d"/pod/fast/*.yaml; do case $f in */kustomization.yaml) ;; *) stages+=(--config "$f");; esac; done
  start kwok kwok --kubeconfig="$KUBECONFIG" --manage-all-nodes=false --manage-nodes-with-label-selector=type=kwok --node-lease-duration-seconds=40 "${stages[@]}"
  res='cpu: "192", memory: 2Ti, pods: "110", nvidia.com/gpu: "8", ephemeral-storage: 10Ti, rdma/rdma_shared_device_a: "64", vpc.amazonaws.com/efa: "32"'
  for i in $(seq "$JG_FAKE_NODES"); do printf -- '---\napiVersion: v1\nkind: Node\nmetadata: {name: fake-%s, labels: {type: kwok, kubernetes.io/hostname: fake-%s, kubernetes.io/arch: amd64, kubernetes.io/os: linux}}\nspec: {taints: [{key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule}]}\nstatus: {capacity: {%s}, allocatable: {%s}}\n' "$i" "$i" "$res" "$res"; done | kubectl apply -f - >/dev/null
  wait_for 60 "fake nodes" kubectl wait --for=condition=Ready node -l type=kwok --timeout=1s; say "fake nodes ready"
fi
echo "$JG_OPERATORS $JG_FAKE_NODES" > "$R/up"; say "up: export KUBECONFIG=$KUBECONFIG"
