// Package usernet gives a container a network without an engine: a network
// namespace, and a program of the host's distribution that carries what comes
// out of it as connections of the host's own (pasta, slirp4netns). No bridge, no
// firewall rule and no address of the host's is needed.
//
// The namespace has no name: it ends with the process that made it and with the
// container's machine. So does the program. Nothing is left when that process is
// killed.
package usernet
