// Package resource computes how large a pod's virtual machine is to be. It is
// arithmetic only: it reads no file and asks nobody.
//
//	container's OCI limits ──OfContainer──┐
//	                                      ├──> Need ──Machine.Size──> Size
//	CRI's annotations ──OfAnnotations─────┘
//
// and what the pod gets of the host's CPUs: which ones, and how much beside
// others.
//
//	container's OCI limits ──PlaceOf──> Place ──Together──> Place
//
// A machine has its default size for itself and for containers without limits;
// what containers are allowed to use comes on top of it. Fractions of a CPU are
// added up and rounded once, for the machine; memory is rounded up to the unit
// in which Linux takes in new memory.
//
// Which containers count, and what is done with the result, is up to the
// caller, package sizing. The pod's cgroups on the host are package
// hostcgroup's.
package resource
