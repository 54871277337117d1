// Package iptables runs the iptables tools of the guest's image, for the host: it
// saves the rules of the guest's network, which all containers of the pod use, and
// restores them. The usual image does not have the tools
// (docs/adr/0047-iptables-tools-are-an-option-of-the-image.md).
//
// A tool runs in the agent's namespaces, without an environment. Its input and
// output are bounded, and it is killed when the call ends. It is never a
// container's program.
package iptables
