// Package warmup is the container that runs in a guest before that has a pod: in a
// spare machine, and in one that becomes a template. A guest's first container
// waits for much that later ones do not: pages of the agent, the kernel's caches,
// drivers and, without KVM, QEMU's translation of all that code. So this one is
// like those of engines, and gets into the guest in the same way.
package warmup
