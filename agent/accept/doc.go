// Package accept serves a listener of the agent's: a bounded number of
// connections at a time, each in a goroutine that is waited for, and one frame
// of an answer to each.
package accept
