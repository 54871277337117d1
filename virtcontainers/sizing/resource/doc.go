// Package resource computes the size of a pod's virtual machine. It is
// arithmetic only: it reads no file and makes no calls.
//
//	container's OCI limits ──OfContainer──┐
//	the same from the kubelet ─OfKubelet──┤
//	                                      ├──> Need ──Machine.Size──> Size
//	CRI's annotations ──OfAnnotations─────┤
//	CRI's pod configuration ──OfPod───────┘
//
// It also computes the pod's share of the host's CPUs: which ones, and with what weight.
//
//	container's OCI limits ──PlaceOf──> Place ──Together──> Place
//
// A machine's default size is for itself and for containers without limits;
// containers' limits are added to it. Fractions of a CPU are added up and
// rounded once, for the machine; memory is rounded up to the unit in which
// Linux hot-plugs memory.
//
// The caller, package sizing, decides which containers count and applies the
// result. Package hostcgroup manages the pod's cgroups on the host.
package resource
