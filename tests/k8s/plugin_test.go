package k8s

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// pluginDir is where the kubelet listens for device plugins, and where they listen.
const pluginDir = "/var/lib/kubelet/device-plugins"

// message is a message of the kubelet's API for device plugins (k8s.io/kubelet,
// pkg/apis/deviceplugin/v1beta1/api.proto), encoded.
type message []byte

// with appends a field: a text, or a message.
func (m message) with(number protowire.Number, value string) message {
	return protowire.AppendString(protowire.AppendTag(m, number, protowire.BytesType), value)
}

// flag appends a field that is true.
func (m message) flag(number protowire.Number) message {
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), 1)
}

// entry appends an entry of a map of texts.
func (m message) entry(number protowire.Number, key, value string) message {
	return m.with(number, string(message(nil).with(1, key).with(2, value)))
}

// rawCodec sends messages as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*message), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*message) = append(message(nil), data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }

// plugin is a device plugin with one device, for which it always gives the same
// answer (a ContainerAllocateResponse).
type plugin struct {
	resource string
	answer   message
}

// serve serves the plugin until the test ends, and registers it.
func (p plugin) serve(t *testing.T) {
	t.Helper()
	endpoint := filepath.Base(p.resource) + ".sock"
	serveRaw(t, filepath.Join(pluginDir, endpoint), p.handle)
	if err := register(t.Context(), message(nil).with(1, "v1beta1").with(2, endpoint).with(3, p.resource)); err != nil {
		t.Fatalf("register %s with the kubelet: %v", p.resource, err)
	}
}

// serveRaw serves all methods on a socket until the test ends.
func serveRaw(t *testing.T, path string, handler grpc.StreamHandler) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(handler))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		_ = os.Remove(path)
	})
}

func register(ctx context.Context, request message) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(pluginDir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return conn.Invoke(ctx, "/v1beta1.Registration/Register", &request, new(message), grpc.ForceCodec(rawCodec{}))
}

// handle answers all methods.
func (p plugin) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if err := stream.RecvMsg(new(message)); err != nil {
		return err
	}
	var answer message
	switch filepath.Base(method) {
	case "ListAndWatch":
		one := message(nil).with(1, "one").with(2, "Healthy")
		answer = message(nil).with(1, string(one))
		if err := stream.SendMsg(&answer); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	case "Allocate":
		answer = message(nil).with(1, string(p.answer))
	case "GetDevicePluginOptions":
	default:
		return fmt.Errorf("unexpected method %s", method)
	}
	return stream.SendMsg(&answer)
}

// device is a DeviceSpec.
func device(inside, host, access string) string {
	return string(message(nil).with(1, inside).with(2, host).with(3, access))
}
