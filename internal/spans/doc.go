// Package spans records how long named parts of a start took: the shim's on
// the host, the agent's in the guest. It remembers a bounded number, in memory
// alone, and is cheap enough to be always on: two readings of the clock and an
// append under a lock for each part. What the spans mean, and how they are
// drawn, is not its business (virtcontainers/timeline).
package spans
