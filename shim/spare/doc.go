// Package spare is the process that boots a machine before there is a pod for it.
// It is this program again; the shim of an earlier pod, or another spare, starts
// it.
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
// Until begin, a claimed spare ends with the claimer's connection, and so does its
// machine. An unclaimed spare ends on request, when its machine ends or its guest does
// not answer, when its configuration or files have changed, and after a day.
package spare
