// Package modules selects kernel modules: it reads each module's .modinfo, adds
// the dependencies of the wanted modules and sorts the result in load order, as
// depmod and modprobe would, so that the guest needs neither: its init loads one
// file after the other.
//
// Modules that are built into the kernel count as loaded. Soft dependencies
// ("pre:") are followed if the package has them; "post:" ones are not.
package modules
