package run

import (
	"os"
	"testing"
)

// Each kind of image, and each way in which a command can end.
func TestImagesAndExitCodes(t *testing.T) {
	ctx := testContext(t)
	for _, test := range []struct {
		name, image string
		args        []string
		code        int
		out         string
	}{
		{"layout, 0", bed.images.layout, []string{"id", "-u"}, 0, "0\n"},
		{"layout's tar, 42", bed.images.archive, []string{"sh", "-c", "cat /etc/group | wc -l; exit 42"}, 42, "4\n"},
		{"docker archive, SIGTERM", bed.images.docker, []string{"sh", "-c", `sh -c 'kill -TERM $$'; exit $?`}, 143, ""},
		{"registry, SIGKILL", bed.images.registry, []string{"sh", "-c", `echo x; sh -c 'kill -KILL $$'; exit $?`}, 137, "x\n"},
		{"root file system", bed.images.rootfs, []string{"/bin/sh", "-c", "echo new >/file; cat /file"}, 0, "new\n"},
		{"no such command", bed.images.layout, []string{"nosuch"}, 127, ""},
		{"no program", bed.images.layout, []string{"/etc/passwd"}, 126, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"run", "--rm", "--network", "none", "--name", newName(t), test.image}, test.args...)
			call(ctx, t, "", args...).want(t, test.code, test.out)
		})
	}
	if _, err := os.Stat(bed.images.rootfs + "/file"); err == nil {
		t.Error("a container has written into the directory that it runs")
	}
}
