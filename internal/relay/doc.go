// Package relay joins two connections: what comes from one side goes to the
// other, half-closes included. The shim and the agent carry TCP and UNIX
// connections over vsock with it.
package relay
