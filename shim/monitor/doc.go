// Package monitor reads the management sockets of all pods of this host
// (shim/management) and offers their metrics to Prometheus, as Kata Containers'
// kata-monitor does: one scrape for the host, each sample with its pod's id and
// name. It also finds the pod that has mounted a direct-assigned volume, to ask
// for the volume's size or to grow it, carries a guest's iptables rules, and has
// pods hibernate and wake. A dead or hanging shim costs only its own
// answer: pods are asked concurrently, each with a timeout, and the size of an
// answer is bounded. It runs in kata-runtime, never in a shim.
package monitor
