// Package soak is the suite that goes on and on. It runs pods one after the
// other, and then many at once for a time, while one more pod lives through all
// of it. Each pod is a whole life: a container, its output, an exec, an end by
// itself or by a signal, the removal. What the host, containerd and the
// long-lived pod's shim and QEMU hold is printed before and after, and what
// grows with the number of pods fails the suite.
//
// A run is short unless it is told otherwise: KATABOX_SOAK_PODS is how many pods
// come one after the other, KATABOX_SOAK_AT_ONCE how many live at a time, and
// KATABOX_SOAK_TIME for how long (as in "1h"). "make test-soak" runs 1,000, and
// 20 for an hour.
package soak
