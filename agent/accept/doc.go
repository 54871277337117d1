// Package accept serves one of the agent's listeners: a bounded number of
// concurrent connections, each in a goroutine that Serve waits for, and sends
// answers of one frame.
package accept
