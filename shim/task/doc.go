// Package task serves containerd's task API for one sandbox. It decodes requests,
// calls virtcontainers, encodes answers and publishes events; it makes no policy
// decisions.
//
// One implementation answers both versions of the service,
// containerd.task.v2.Task and containerd.task.v3.Task: their messages are the
// same on the wire.
package task
