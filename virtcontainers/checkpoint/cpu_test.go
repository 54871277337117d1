package checkpoint

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// A checkpoint continues on the same model of CPU that has all that the saved one had:
// updates of the host's microcode and kernel change the rest of /proc/cpuinfo.
func TestCheckCPU(t *testing.T) {
	const saved = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14\nstepping\t: 1\nmicrocode\t: 0xffffffff\nflags\t\t: fpu sse2 avx512f pti rep_good ept_ad sev_es sev_snp"
	with := func(was, is string) string { return strings.Replace(saved, was, is, 1) }
	for name, tt := range map[string]struct{ has, want string }{
		"the same":           {saved, ""},
		"newer microcode":    {with("0xffffffff", "0xa101154"), ""},
		"without microcode":  {with("microcode\t: 0xffffffff\n", ""), ""},
		"a flag more":        {with("sse2", "sse2 vaes"), ""},
		"flags in new order": {with("fpu sse2", "sse2 fpu"), ""},
		"flags less":         {with("sse2 avx512f", "avx"), `this one lacks the flags ["sse2" "avx512f"]`},
		"without pti":        {with(" pti", ""), ""},
		"without the host's": {with(" pti rep_good ept_ad sev_es sev_snp", " ring3mwait"), ""},
		"without SEV-SNP":    {with(" sev_snp", ""), ""},
		"less, same model":   {with("avx512f pti", "avx2"), `offers more: this one lacks the flags ["avx512f"]:`},
		"part of a flag":     {with("avx512f", "avx512fp16"), `["avx512f"]`},
		"no flags":           {with("flags\t\t: fpu sse2 avx512f pti rep_good ept_ad sev_es sev_snp", ""), `["fpu" "sse2" "avx512f"]`},
		"another stepping":   {with("stepping\t: 1", "stepping\t: 2"), `stepping is "1" there and "2" here`},
		"another model":      {with("model\t\t: 17", "model\t\t: 1"), `model is "17" there and "1" here`},
		"another name":       {with("9B14", "9B45"), `(AMD EPYC 9B14), this one has AMD EPYC 9B45`},
		"another vendor":     {with("AuthenticAMD", "GenuineIntel"), `vendor_id is "AuthenticAMD" there and "GenuineIntel" here`},
		"not the guest's":    {"", "this one has an unknown one"},
	} {
		err := Machine{CPU: saved}.Check(Machine{CPU: tt.has})
		if (err == nil) != (tt.want == "") || err != nil && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
	if err := (Machine{CPU: saved}).Check(Machine{CPU: with("sse2", "")}); err == nil || strings.Contains(err.Error(), "another CPU") {
		t.Errorf("the same model with less: %v", err)
	}
	if err := (Machine{}).Check(Machine{CPU: saved}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("saved where the guest did not see the CPU: %v", err)
	}
	long := Machine{CPU: "flags : " + strings.Repeat("a b c d ", 10_000)}
	if err := long.Check(Machine{CPU: "flags : x"}); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a forged record makes an error of %d bytes", len(err.Error()))
	}
}
