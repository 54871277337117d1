// Package rights takes root's rights from processes of ours that do not need
// them: a container's monitor, which copies between open descriptors, and the
// sender of traces.
package rights
