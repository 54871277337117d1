// Package usernet gives a container without an engine a network: a network
// namespace, and a program of the host's distribution (pasta, slirp4netns) that
// carries its traffic as connections of the host. It needs no bridge, no firewall
// rule and no address on the host.
//
// The namespace has no name. It ends with the process that made it and the
// container's machine, and so does the program: nothing is left when that process
// is killed.
package usernet
