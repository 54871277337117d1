// Package rpc is the edge between the shim's services, which speak errdefs,
// and ttrpc, which speaks gRPC statuses.
package rpc
