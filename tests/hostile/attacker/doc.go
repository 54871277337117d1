// Command attacker is what a malicious container runs, for tests/hostile. It is
// static, and needs nothing but itself.
//
//	attacker try            makes each forbidden call, and prints "NAME ERRNO"; ERRNO is 0 if the call succeeded
//	attacker try-root       the same without the calls that end a privileged container
//	attacker try-user       what try does, in a new user namespace with all capabilities
//	attacker try-one NAME   makes one forbidden call
//	attacker flood KIND ... floods until it is killed, and prints once a second how often it has succeeded
//
// The kinds of floods:
//
//	share              creates, writes, renames, reads and removes files, many small and some of 16 MiB, in /flood
//	memory             starts processes that allocate all memory, one after the other
//	packets ADDRESS    sends UDP packets of 1 KiB
//	calls ADDRESS      makes TCP connections
//
// On the host "attacker sink ADDRESS" accepts and closes connections.
package main
