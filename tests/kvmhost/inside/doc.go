// Package inside has the tests that need a host with KVM, vhost-vsock,
// vhost-net and cgroup v2. The bed above runs them in its machine; on a host
// that has all this they run as any suite does, and elsewhere they are
// skipped.
package inside
