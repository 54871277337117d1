// Package spare is the process that has a machine ready before there is a pod
// for it: this program again, started by the shim of an earlier pod, or by
// another spare.
//
//	shim of an earlier pod      spare                         a pod's start
//	  | -- the store's lock ----> makes the template, if it is missing
//	                              starts a machine, and
//	                              offers itself (package pool)
//	                              starts the next, if one is missing
//	                                |  <------------------------ claims it: rename(2)
//	                                |  <------------------------ order, the shim's socket
//	                              takes the pod's environment,
//	                              directory, name and priority
//	                                | ------ taken ------------>
//	                              leaves its own cgroup
//	                                |                            writes pid and address
//	                                |  <------------------------ begin
//	                              is that pod's shim
//
// Until begin it ends, with its machine, whenever the claimer's connection does.
// Unclaimed it ends when it is told to, when its machine ends, when what it was
// made of has changed, and after a day.
package spare
