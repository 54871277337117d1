// Package guest is the host's end of the conversation with the agent
// (agent/api): it dials, opens streams, and turns what the guest sends into
// Go values and errdefs errors.
//
// A Client outlives its connections if that is announced: between Suspend and
// Relink the guest may lose its vsock device.
//
// Nothing here waits without a bound: every call is bounded by its context, and
// every connection ends when the VM does.
package guest
