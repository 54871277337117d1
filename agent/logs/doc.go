// Package logs keeps the agent's latest log lines in memory and sends them to
// the host.
//
// The host connects when it is ready, some time after the first line is
// written; a bounded ring holds what was logged before and what a slow reader
// has not read yet. Logging never waits for the reader: the oldest lines are
// dropped.
package logs
