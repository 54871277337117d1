package fakeguest_test

import (
	"context"
	"net"
	"testing"

	"github.com/katabox/katabox/agent/api/apitest"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// This guest answers as the agent does.
func TestContract(t *testing.T) {
	apitest.Run(t, func(t *testing.T) apitest.Guest {
		agent := fakeguest.NewAgent()
		t.Cleanup(agent.Die)
		return apitest.Guest{
			Dial:  func(ctx context.Context, port uint32) (net.Conn, error) { return agent.Dial(ctx, port) },
			Write: agent.Write, Exit: agent.Exit,
		}
	})
}
