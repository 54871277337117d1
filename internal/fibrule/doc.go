// Package fibrule has policy rules (ip-rule(8)), in the form of the kernel's messages
// and as text. Host and guest compare, decode and encode rules with it, and send the
// messages themselves.
//
// Decode reads a rule as the kernel reports it, and names the attributes that a Rule
// cannot hold. The netlink package drops such attributes silently, and a rule
// without one of its conditions matches other packets. Rule.Encode writes the message
// that adds or deletes a rule.
package fibrule
