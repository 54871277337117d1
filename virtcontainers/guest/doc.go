// Package guest is the client of the agent (agent/api): it dials, opens streams,
// and turns the guest's answers into Go values and errdefs errors.
//
// Connections may be replaced in an announced way: between Suspend and Relink the
// guest may lose its vsock device, and the Client survives.
//
// Every wait is bounded: a call ends with its context, and every connection ends
// with the VM.
package guest
