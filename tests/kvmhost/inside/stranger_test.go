package inside

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/mdlayher/socket"
	mdvsock "github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// strangerTimeout is more than the agent takes to turn a connection away.
const strangerTimeout = 30 * time.Second

// stranger is a connection of another process of the host than the shim.
type stranger interface {
	io.ReadWriteCloser
	SetDeadline(until time.Time) error
}

// dialReserved connects to a guest from a reserved port, as only root can.
func dialReserved(ctx context.Context, cid, port uint32) (stranger, error) {
	c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, "stranger", nil)
	if err != nil {
		return nil, err
	}
	for from := uint32(500); from < 600; from++ {
		err = c.Bind(&unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: from})
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err == nil {
		_, err = c.Connect(ctx, &unix.SockaddrVM{CID: cid, Port: port})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// answerTo returns what comes on a connection after text was sent, until its end.
func answerTo(t *testing.T, conn stranger, err error, text []byte) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(strangerTimeout)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(text)
	answer, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the agent did not end the connection: %v", err)
	}
	return string(answer)
}

// Another process of the host can connect to a guest's ports, but gets nothing from
// them, neither without a key nor with another one than the shim's.
func TestStrangersAreTurnedAway(t *testing.T) {
	ctx, d := begin(t)
	pod, err := d.NewPod(ctx, "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "pod", pod.Remove) })
	c, err := pod.Add(ctx, harness.ContainerConfig{Name: "service", Args: []string{"sleep", "100000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cid := onlyCID(t)

	dial := func(ctx context.Context, port uint32) (guest.Conn, error) {
		return mdvsock.DialContext(ctx, cid, port, nil)
	}
	bounded, cancel := context.WithTimeout(ctx, strangerTimeout)
	defer cancel()
	if client, err := guest.Connect(bounded, dial); err == nil {
		t.Errorf("the agent said hello to a stranger: %v", client.Info)
		_ = client.Close()
	}
	key := make([]byte, api.KeyBytes)
	for _, port := range []uint32{api.PortRPC, api.PortLog, api.PortStream, api.PortForward, api.PortReverse, api.PortKey} {
		conn, err := mdvsock.DialContext(ctx, cid, port, nil)
		if got := answerTo(t, conn, err, key); got != "" {
			t.Errorf("port %d answered %q to a wrong key", port, got)
		}
	}
	conn, err := dialReserved(ctx, cid, api.PortKey)
	if got := answerTo(t, conn, err, key); got != string([]byte{api.KeyRefused}) {
		t.Errorf("another key from a reserved port was answered %q, want a refusal", got)
	}
	if p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"echo", "works"}}); err != nil || code != 0 || p.Out.String() != "works\n" {
		t.Errorf("afterwards an exec of the pod: code %d, %v", code, err)
	}
}

// onlyCID returns the context id of the only guest.
func onlyCID(t *testing.T) uint32 {
	t.Helper()
	cids := agentCIDs(t)
	if len(cids) != 1 {
		t.Fatalf("the context ids are %v, want one", cids)
	}
	for text := range cids {
		cid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(cid)
	}
	return 0
}
