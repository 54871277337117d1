// Package rpc is the boundary between the shim's services, which use errdefs, and
// ttrpc, which uses gRPC statuses. Deadlines of calls that a setting gives are here
// too (deadline.go): their errors name it.
package rpc
