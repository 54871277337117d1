// Package inside has the tests that need a host with KVM, vhost-vsock,
// vhost-net and cgroup v2. Command kvmhost runs them in its machine; on a host
// that has all this they run like any suite, and elsewhere they are skipped.
package inside
