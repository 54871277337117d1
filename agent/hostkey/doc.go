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
// The key in use may be offered again, for connections that come after the present ones
// have ended; until the first of them comes it is taken. Other keys are refused.
package hostkey
