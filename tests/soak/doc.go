// Package soak is the endurance suite. It runs pods one after the other, and
// then many simultaneously for a time, while one resident pod lives through all
// of it. Each pod has a whole life: a container, its output, an exec, an exit
// by itself or by a signal, the removal. The suite prints the resources of the
// host, of containerd, and of the resident pod's shim and QEMU, before and
// after. It fails if their use grows with the number of pods.
//
// A run is short by default: KATABOX_SOAK_PODS is how many pods run one after
// the other, KATABOX_SOAK_AT_ONCE how many run simultaneously, and
// KATABOX_SOAK_TIME for how long (as in "1h"). "make test-soak" runs 1,000, and
// 20 for an hour.
package soak
