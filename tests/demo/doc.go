// Demo is what "make demo" runs: a pod of one pause and three service
// containers under a private containerd, with each container's output and exit
// code, the host processes that the pod cost, and the proof that nothing of it
// is left. It is for newcomers, and uses the same harness as the suites.
package main
