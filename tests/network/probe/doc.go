// Probe is the program that the network suite runs on both ends: in a
// container, in a pod's network namespace and on the host. It is static, so
// that it runs in any root file system.
//
//	probe serve tcp://ADDR udp://ADDR ...   echo servers; prints "ready"
//	probe serve reset://ADDR                a server that resets connections
//	probe serve dns://ADDR                  a DNS server, by UDP and TCP
//	probe serve unix:///PATH                echo, at a UNIX socket; or unixpacket, peercred
//	probe check tcp://ADDR?bytes=N ...      one line "ok ..." for each, or an error
//	probe file USE PATH                     locks, mappings, attributes, what shares refuse; "ok", or an error
//	probe hold FIFO FIFO PATH ...           what open files show, on request
//	probe ports HOST FROM:TO ...            connections that are refused, and ports of listeners
//	probe state                             the network as lines that can be compared
//	probe watch DIRECTORY                   "ready", then inotify's events, until one is about a file "end"
//
// checks (check.go) says what each check proves, and printState (state.go) what
// the lines of the state mean.
package main
