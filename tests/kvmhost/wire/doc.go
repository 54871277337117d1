// Package wire is the protocol between the test bed and the init of its
// machine, over one virtio-serial port: frames of a kind, a length and data.
// The host sends one command after the other, the guest the output and exit of
// each.
//
//	host                         guest
//	                    <------  Hello    once, when the machine is ready
//	Run                 ------>
//	Input*, InputEnd    ------>
//	                    <------  Output*, Errors*
//	                    <------  Exit     after all output of the command
//	                    <------  Beat     every BeatPeriod, whatever else is sent
//	PowerOff            ------>
package wire
