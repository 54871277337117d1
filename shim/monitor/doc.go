// Package monitor reads the management sockets of all pods of this host
// (shim/management) and serves their metrics to Prometheus, as Kata Containers'
// kata-monitor does: one scrape for the host, each sample with its pod's id and
// name. It also queries and grows direct-assigned volumes in the pod that has
// mounted them, reads and sets a guest's iptables rules, and hibernates and wakes
// pods. A dead or hanging shim costs only its own answer: pods are queried
// concurrently, each with a timeout, and the size of an answer is bounded. The
// package runs in kata-runtime, never in a shim.
package monitor
