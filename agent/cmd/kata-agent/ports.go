package main

import (
	"net"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/hostkey"
)

// ports are the agent's listeners. All but key give out only connections that have
// begun with the key that keeper has.
type ports struct {
	keeper *hostkey.Keeper

	log, stream, forward, reverse net.Listener
	debug                         net.Listener // nil without a debug console
	key, rpc                      net.Listener
}

// openPorts opens all ports. The one for calls is the last: once the host is
// connected to it, it can use the others.
func openPorts(console bool) (*ports, error) {
	p := &ports{keeper: new(hostkey.Keeper)}
	for _, open := range []struct {
		to     *net.Listener
		port   uint32
		wanted bool
		guard  func(net.Listener) net.Listener
	}{
		{&p.log, api.PortLog, true, p.keeper.Guard},
		{&p.stream, api.PortStream, true, p.keeper.Guard},
		{&p.forward, api.PortForward, true, p.keeper.Guard},
		{&p.reverse, api.PortReverse, true, p.keeper.Guard},
		{&p.debug, api.PortDebug, console, p.keeper.Guard},
		{&p.key, api.PortKey, true, func(l net.Listener) net.Listener { return l }},
		{&p.rpc, api.PortRPC, true, p.keeper.GuardCalls},
	} {
		if !open.wanted {
			continue
		}
		l, err := listen(open.port)
		if err != nil {
			return nil, err
		}
		*open.to = open.guard(l)
	}
	return p, nil
}
