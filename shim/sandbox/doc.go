// Package sandbox serves containerd's sandbox API (containerd 2.x with sandboxer
// = "shim"): a pod that is a virtual machine without a pause container. Its
// containers are created by the task API, on the same socket.
//
//	CreateSandbox: read the configuration,
//	  write the pod's files                  -> [created]
//	StartSandbox:  boot the machine          -> [ready]
//	StopSandbox, or its death                -> [not ready]; WaitSandbox answers
//	ShutdownSandbox: end the shim
package sandbox
