// Package api has everything that the host and the guest's agent share: the Guest
// service (guest.proto), the vsock ports, the paths in the guest that both sides
// use, and the framing of stdio and forwarding connections.
//
// The calls in the life of a VM:
//
//	host                                         guest (agent)
//	 | -- connect PortKey, the host's key --------> |  every other connection begins with it
//	 | -- connect PortRPC ------------------------> |
//	 | -- Guest.Hello ----------------------------> |  versions, kernel, times
//	 | -- Guest.Events (stream) ------------------> |  exits, OOM kills
//	 | -- connect PortLog ------------------------> |  JSON log lines
//	 | -- Guest.SetupSandbox ---------------------> |  clock, modules, storages
//	 | -- Guest.SetNetwork -----------------------> |  hostname, NICs, routes; again when they change
//	 | -- Task.Create (ContainerConfig) ----------> |  init forked, not yet exec'd
//	 | -- connect PortStream, StreamOpen ---------> |  once for each stdio end
//	 | -- Task.Start -----------------------------> |
//	 | -- connect PortForward, ForwardOpen -------> |  once for each forwarded connection
//	 | -- connect PortReverse, ReverseOpen -------> |  listen in the guest for a server on the host
//	 | <= Events: Exit ============================ |
//	 | -- Task.Delete ----------------------------> |
//
// The host must not trust anything from the guest: every length is bounded
// here, where it is read.
package api

//go:generate protoc -I . --go_out=. --go_opt=paths=source_relative --go-ttrpc_out=. --go-ttrpc_opt=paths=source_relative guest.proto
