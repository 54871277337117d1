// Package rights drops root's capabilities in processes that do not need them: a
// container's monitor, which copies between open descriptors, and the sender of
// traces.
package rights
