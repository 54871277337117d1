// Package hostkey gives the agent's servers only connections of the machine's
// owner: those that begin with its key (agent/api, key.go).
//
// The key's states:
//
//	        Serve: a key from        GuardCalls: a connection
//	        a reserved port          that begins with it
//	[none] -----------------> [taken] -----------------> [in use]
//	   ^                                                    |
//	   +----------------------------------------------------+
//	                the last such connection ends
//
// Other keys are refused until then.
package hostkey
