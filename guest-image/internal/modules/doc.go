// Package modules chooses kernel modules: it reads what each module says of
// itself (.modinfo), closes a wish list over the dependencies and puts the
// result in load order, as depmod and modprobe would, so that the guest needs
// neither: its init loads one file after the other.
//
// What is built into the kernel counts as loaded. Soft dependencies ("pre:")
// are followed when the package has them; "post:" ones are not.
package modules
