// Package resource computes the size of a pod's virtual machine. It is
// arithmetic only: it reads no file and makes no calls.
//
//	container's OCI limits ──OfContainer──┐
//	                                      ├──> Need ──Machine.Size──> Size
//	CRI's annotations ──OfAnnotations─────┘
//
// and the pod's part of the host's CPUs: which ones, and with what weight.
//
//	container's OCI limits ──PlaceOf──> Place ──Together──> Place
//
// A machine has its default size for itself and for containers without limits;
// containers' limits are added to it. Fractions of a CPU are added up and
// rounded once, for the machine; memory is rounded up to the unit in which
// Linux hot-plugs memory.
//
// Which containers count, and what is done with the result, is up to the
// caller, package sizing. The pod's cgroups on the host are package
// hostcgroup's.
package resource
