package k8s

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/k8s/node"
)

// owned is a pod whose volumes get owners and modes in each way that there is.
const owned = `
	securityContext: {runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000, supplementalGroups: [4000], supplementalGroupsPolicy: Strict, fsGroupChangePolicy: OnRootMismatch}
	volumes:
	- {name: scratch, emptyDir: {}}
	- {name: memory, emptyDir: {medium: Memory}}
	- {name: host, hostPath: {path: $HOST, type: DirectoryOrCreate}}
	- {name: config, configMap: {name: owned-$RUNTIME, items: [{key: key, path: a/b}, {key: two, path: two, mode: 0444}], defaultMode: 0640}}
	- {name: secret, secret: {secretName: owned-$RUNTIME, defaultMode: 0400}}
	- {name: all, projected: {defaultMode: 0600, sources: [{secret: {name: owned-$RUNTIME}}, {serviceAccountToken: {path: token}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}
	containers:
	- name: a
	  image: $BUSYBOX
	  command: [sleep, "1000"]
	  env: [{name: SUB, value: x/y}]
	  volumeMounts: &mounts
	  - {name: scratch, mountPath: /v/scratch}
	  - {name: memory, mountPath: /v/memory}
	  - {name: host, mountPath: /v/host}
	  - {name: config, mountPath: /v/config}
	  - {name: secret, mountPath: /v/secret}
	  - {name: all, mountPath: /v/all}
	  - {name: scratch, mountPath: /v/part, subPathExpr: $(SUB)}
	  - {name: config, mountPath: /v/two, subPath: two}
	- name: b
	  image: $BUSYBOX
	  securityContext: {runAsUser: 1001, runAsGroup: 1001}
	  command: [sleep, "1000"]
	  env: [{name: SUB, value: x/y}]
	  volumeMounts: *mounts`

// ownedTry makes files, and lists all.
const ownedTry = `id; cd /v; for d in *; do [ -d $d ] && touch $d/new-$(id -u) 2>/dev/null && echo $d; done
	find . -type f -o -type l -o -type d | grep -v '/\.\.' | sort | xargs stat -Lc '%n %A %u:%g'
	cat two config/a/b all/key secret/key 2>&1`

// ownedSeen is what b sees, after a has made its files.
const ownedSeen = `uid=1001 gid=1001 groups=1001,2000,4000
memory
part
scratch
. drwxr-xr-x 0:0
./all drwxrwsrwt 0:2000
./all/key -rw-r----- 0:2000
./all/labels -rw-r----- 0:2000
./all/token -rw-r----- 0:2000
./config drwxrwsrwx 0:2000
./config/a drwxr-sr-x 0:2000
./config/two -r--r--r-- 0:2000
./host drwxr-xr-x 0:0
./memory drwxrwsrwt 0:2000
./memory/new-1000 -rw-r--r-- 1000:2000
./memory/new-1001 -rw-r--r-- 1001:2000
./part drwxrwsrwx 0:2000
./part/new-1000 -rw-r--r-- 1000:2000
./part/new-1001 -rw-r--r-- 1001:2000
./scratch drwxrwsrwx 0:2000
./scratch/new-1000 -rw-r--r-- 1000:2000
./scratch/new-1001 -rw-r--r-- 1001:2000
./scratch/x drwxrwsrwx 0:2000
./scratch/x/y drwxrwsrwx 0:2000
./scratch/x/y/new-1000 -rw-r--r-- 1000:2000
./scratch/x/y/new-1001 -rw-r--r-- 1001:2000
./secret drwxrwsrwt 0:2000
./secret/key -r--r----- 0:2000
./two -r--r--r-- 0:2000
2css`

// The groups of a pod, and the owners and modes of its volumes' files.
func TestVolumeOwnership(t *testing.T) {
	both(t, func(s *stage) {
		s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned-$RUNTIME}\ndata: {key: c, two: \"2\"}\n---\n" +
			"apiVersion: v1\nkind: Secret\nmetadata: {name: owned-$RUNTIME}\nimmutable: true\nstringData: {key: s}\n")
		pod := s.pod("owned", strings.ReplaceAll(owned, "$HOST", filepath.Join(node.Dir, "owned-"+s.runtime)))
		s.ready(pod)
		first, _, _ := strings.Cut(s.sh(pod, ownedTry), "\n")
		s.same("a", first, "uid=1000 gid=3000 groups=2000,3000,4000")
		s.same("what b sees", s.must("exec", pod, "-c", "b", "--", "sh", "-c", ownedTry), ownedSeen)
	})
}
