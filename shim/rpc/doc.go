// Package rpc is the boundary between the shim's services, which use errdefs, and
// ttrpc, which uses gRPC statuses. It also has the deadlines that come from a
// setting (deadline.go); their errors name the setting.
package rpc
