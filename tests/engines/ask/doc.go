// Command ask gets a URL over plain HTTP, by a name that the container's own
// resolver must know. Scenes mount it into containers: Debian's static busybox
// crashes in the resolver if a name is not in /etc/hosts.
//
//	ask [-for DURATION] URL    prints the body; exits with 1 after DURATION without one
package main
