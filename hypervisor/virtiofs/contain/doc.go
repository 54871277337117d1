// Package contain confines a thread before it serves a guest's requests: it
// removes everything that a file server does not need.
//
//   - Its mount namespace and root directory are the share's. Its working
//     directory is this process's /proc/self/fd, mounted nowhere. Through it the
//     thread reopens O_PATH descriptors, and names them to calls that take a path
//     (setxattr(2), truncate(2)).
//   - It has the eight file capabilities that virtiofsd has, in no set but the
//     permitted and the effective one, and an empty bounding set; and
//     no_new_privs.
//   - Its own seccomp filter allows the system calls that files and Go's
//     runtime need. Every other one fails with EPERM.
//   - The process is not dumpable, so that the threads of other pods cannot access its
//     memory by a proc file system of the host.
//
// It cannot change that the thread shares memory and descriptors with the rest
// of the process. docs/threat-model.md says what that means.
package contain
