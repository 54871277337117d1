// Package rpc is the boundary between the shim's services, which use errdefs, and
// ttrpc, which uses gRPC statuses.
package rpc
