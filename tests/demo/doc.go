// Demo is what "make demo" runs: a pod of one pause and three service
// containers under a private containerd, with each container's output and exit
// code, the host processes that the pod cost, and the proof that nothing of it
// is left. It is a story for a newcomer, told by the same harness that the
// suites use; the suites prove, the demo shows.
package main
