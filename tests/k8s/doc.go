// Package k8s runs pods on a real Kubernetes of one node (package node), which
// Katabox's installer has prepared. Each case is played with runc and with
// Katabox at the same time, and expects the same of both.
//
// "make test-k8s" builds Kubernetes from the Go module proxy first.
package k8s
