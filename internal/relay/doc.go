// Package relay connects two connections: bytes from one side go to the other,
// half-closes included. The shim and the agent use it to carry TCP and UNIX
// connections over vsock.
package relay
