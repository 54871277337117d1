// Package node runs a Kubernetes of one node on a private host (package host):
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd with
// CRI, and the kubelet, with paths and settings as a cluster has them.
//
//	etcd <── apiserver <── controller-manager, scheduler, kubectl
//	             │  ^
//	             v  │
//	          kubelet ──CRI──> containerd ──> runc, and what is installed on the node
//
// Each is a service: when it ends it is started again, as systemd does it.
// A stand-in for systemctl restarts containerd for the installer. There is no
// kube-proxy: of the services only "kubernetes" has a working address.
//
// Cgroups are the machine's, below one that the caller names. Settings of the
// kernel that the kubelet would change for the whole machine are hidden from it.
package node
