// Package warmup is the container that runs in a guest before it has a pod: in a
// spare, and in a machine that becomes a template. A guest's first container has
// costs that later ones do not have: the agent's page faults, cold kernel caches,
// drivers and, without KVM, QEMU's translation of all that code. This container
// pays them. Therefore it resembles those of engines, and is created in the same
// way.
package warmup
