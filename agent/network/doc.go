// Package network configures the guest's own network stack, which every
// container of the pod shares. Addresses and routes of the pod's interfaces
// are not set here yet: only the loopback link is. What the interfaces have
// carried is read here too.
package network
