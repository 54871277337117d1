// Package wire is what the test bed and the init of its machine say to each
// other over one virtio-serial port: frames of a kind, a length and data. The
// host sends commands one after the other, the guest their output and end.
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
