// Package pci finds the devices that the host plugs into the guest by their PCI
// paths, and waits for those that do not exist yet: names and bus numbers are
// the kernel's choice and depend on the order in which devices appear.
//
// It handles directories of sysfs, not kinds of devices; packages network and
// guest look for theirs below the directory.
package pci
