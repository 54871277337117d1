package cri

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

// A container that has a whole volume cannot redirect another container's part
// of it: the guest must check the path to a part, because the host has none of
// the volume's files.
func TestSubPathIsNotLedAstray(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		dir := k.memory("cache", "8m")
		part, below := k.subPath(dir, "part", 0), k.subPath(dir, "on/the/way", 1)
		p := runp(ctx, t, e, "astray")
		id := p.start(ctx, t, forever, with(dir+":/cache"))
		p.sh(ctx, t, id, "ln -s / /cache/part; ln -s /run /cache/on")
		for _, source := range []string{part, below} {
			if got := p.refused(ctx, t, with(source+":/mnt")); !strings.Contains(got, "link") && !strings.Contains(got, "directory") {
				t.Errorf("the error is: %s", got)
			}
		}
		// Existing directories keep their mode.
		p.sh(ctx, t, id, "rm /cache/part /cache/on; mkdir -m 0711 /cache/part; echo mine > /cache/part/file")
		other := p.start(ctx, t, forever, with(part+":/mnt"))
		if got := p.sh(ctx, t, other, "stat -c %a /mnt; cat /mnt/file"); got != "711\nmine" {
			t.Errorf("in the part: %q", got)
		}
	})
}

// hostIDs is the mapping of a pod's user namespace, as CRI has it.
var hostIDs = []any{map[string]any{"host_id": 200000, "container_id": 0, "length": 65536}}

// In a pod with a user namespace root owns what it makes in every volume.
func TestVolumesInUserNamespace(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		if r := e.Daemon.Release(); r.ConfigVersion < 3 {
			t.Skipf("CRI asks for idmapped mounts since containerd 2.0; this is %s", r.Version(ctx))
		}
		k := newKubelet(t, e, `runtime.emptydir_mode = "block-plain"`)
		cache, scratch, secret := k.own(k.memory("cache", "8m"), 0, 0, 0o700), k.volume("empty-dir", "scratch"), k.volume("secret", "login")
		k.publish(secret, map[string]string{"user": "alice"})
		namespace := map[string]any{"mode": podPID, "uids": hostIDs, "gids": hostIDs}
		security := map[string]any{"namespace_options": map[string]any{"userns_options": namespace}}
		text, err := json.Marshal(security)
		k.must(err)
		p := runpWith(ctx, t, e, "userns", bed.runtime.Name, `"security_context": `+string(text))
		volumes := mounts(cache+":/cache", scratch+":/scratch", secret+":/secret:ro")
		for _, m := range volumes {
			m.(map[string]any)["uidMappings"], m.(map[string]any)["gidMappings"] = hostIDs, hostIDs
		}
		id := p.start(ctx, t, forever, map[string]any{"linux": map[string]any{"security_context": security}, "mounts": volumes})
		script := "cd /; for f in cache scratch; do echo word > /$f/file; stat -c %u:%g /$f /$f/file; done; stat -c %u:%g /secret; cat /secret/user"
		if got := strings.Fields(p.sh(ctx, t, id, script)); strings.Join(got, " ") != "0:0 0:0 0:0 0:0 0:0 alice" {
			t.Errorf("in the container: %q", got)
		}
	})
}
