// Package spans records how long named parts of a start took: the shim's on the
// host, the agent's in the guest. It keeps a bounded number, in memory only, and
// is cheap enough to be always on: two readings of the clock and an append under
// a lock for each part. virtcontainers/timeline interprets and draws the spans.
package spans
