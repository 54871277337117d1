// Package pool keeps the host's spares: shims that have a running machine and
// wait for a pod. Each is one process with one socket. The process that renames
// the socket has the spare, and no other can have it.
//
//	DIR/                    root's, 0700
//	    NAME.ID             the socket of a spare that is ready
//	    spare-ID/           what the spare has on the host; removed with it, or when
//	                        a pod has adopted its machine
//	        spare.json      its process, and of what it was made
//	        socket          the same socket, once it was claimed
//
//	Add           Offer            Claim                    Give
//	---> [making] -----> [ready] --------> [claimed] ----------------> a pod's shim
//	        |               |                  |  no request in time
//	        v               v Withdraw         v
//	      Remove          Remove             Remove
//
// A spare's name is a hash of all by which a shim differs from another one of
// the same configuration before it knows its pod (NameOf). What its machine is
// made of is in its record, and is compared when a pod adopts it.
//
// The kernel ends the machine of a killed spare. Tidy removes what else it left.
package pool
