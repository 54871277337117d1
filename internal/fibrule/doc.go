// Package fibrule has policy rules (ip-rule(8)), in the form of the kernel's messages
// and as text. Host and guest compare, read and write rules with it; sending messages
// is theirs.
//
// Decode reads a rule as the kernel reports it, and names what a Rule cannot hold. The
// netlink package drops such attributes without a word, and a rule without one of its
// conditions matches other packets.
// Rule.Encode writes the message that adds or deletes it.
package fibrule
