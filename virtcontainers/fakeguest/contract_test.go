package fakeguest_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api/apitest"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// This guest answers as the agent does.
func TestContract(t *testing.T) {
	apitest.Run(t, func(t *testing.T) apitest.Guest {
		agent := fakeguest.NewBareAgent()
		t.Cleanup(agent.Die)
		return apitest.Guest{
			Dial:  func(ctx context.Context, port uint32) (net.Conn, error) { return agent.Dial(ctx, port) },
			Write: agent.Write, Exit: agent.Exit,
			HoldExec: func() (<-chan struct{}, func()) {
				begun, held := make(chan struct{}), make(chan struct{})
				agent.Hook(fakeguest.Starting, func(context.Context, proto.Message) error {
					close(begun)
					<-held
					return nil
				})
				return begun, func() {
					agent.Hook(fakeguest.Starting, nil)
					close(held)
				}
			},
		}
	})
}
