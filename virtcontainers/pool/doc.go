// Package pool keeps the host's spares: shims with a running machine that wait for
// a pod. Each is one process with one socket. Renaming the socket claims the spare,
// so only one process can claim it.
//
//	DIR/                    root's, 0700
//	    NAME.ID             the socket of a spare that is ready
//	    spare-ID/           the spare's files; removed with it, or when a pod has
//	                        adopted its machine
//	        spare.json      its process, and its inputs (configuration, files)
//	        socket          the same socket, once it was claimed
//
//	Add           Offer            Claim                    Give
//	---> [making] -----> [ready] --------> [claimed] ----------------> a pod's shim
//	        |               |                  |  no request in time
//	        v               v Withdraw         v
//	      Remove          Remove             Remove
//
// A spare's name is a hash of everything by which shims of one configuration differ
// before they know their pod (NameOf). The inputs of its machine are in its record,
// and are compared when a pod adopts it.
//
// The kernel ends the machine of a killed spare. Tidy removes its files.
package pool
