// Package relay connects two connections: bytes from one side go to the other,
// half-closes and resets included. The shim and the agent use it to carry TCP and UNIX
// connections over vsock, which has no resets: Mark makes them on either end.
package relay
