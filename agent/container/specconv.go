package container

import (
	"sync"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
)

// specconvMu guards specconv.AllowedDevices.
var specconvMu sync.Mutex

// convert makes libcontainer's configuration of a spec, with its own device nodes.
// The library is made for a program that runs one container: it puts the same
// default nodes into each configuration, and changes their owner for a container in
// a user namespace. Later containers would have that owner too.
func convert(opts *specconv.CreateOpts) (*configs.Config, error) {
	specconvMu.Lock()
	defer specconvMu.Unlock()
	defer func() {
		for _, node := range specconv.AllowedDevices {
			node.Uid, node.Gid = 0, 0
		}
	}()
	config, err := specconv.CreateLibcontainerConfig(opts)
	if err != nil {
		return nil, err
	}
	for i, node := range config.Devices {
		own := *node
		config.Devices[i] = &own
	}
	return config, nil
}
