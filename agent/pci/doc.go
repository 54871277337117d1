// Package pci finds the devices that the host plugs into the guest by their
// place on the PCI buses, and waits for those that are not there yet: names
// and bus numbers are the kernel's choice and depend on who came first.
//
// It knows directories of sysfs and nothing of what a device is; packages
// network and guest look below the directory for theirs.
package pci
