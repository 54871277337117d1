package checkpoint

import (
	"slices"
	"strings"
)

// linuxFlags are words among a CPU's flags in /proc/cpuinfo that say what the host's kernel
// does, or what only a host has. They come and go with the host's kernel, its parameters and
// its firmware, and no guest sees them. They are from the words that Linux defines
// (arch/x86/include/asm/cpufeatures.h of Linux 5.10, 6.12 and 7.3: words 3, 7, 8 and 11), without
// those that stand for what a guest may have, such as ibrs and arch_perfmon. vnmi is also a
// feature of AMD's CPUs (word 15), which all of one model have. AMD's encryption of memory has
// moved to the CPU's own word 19: SEV-SNP comes and goes with the kernel's parameters for the
// IOMMU.
var linuxFlags = strings.Fields(`
	up art bts rep_good acc_power nopl xtopology tsc_reliable cpuid extd_apicid amd_dcm
	aperfmperf rapl nonstop_tsc_s3 tsc_known_freq
	ring3mwait cpuid_fault cpb epb cat_l3 cat_l2 cdp_l3 cdp_l2 mba invpcid_single
	tdx_host_platform hw_pstate proc_feedback pti intel_ppin sme sev sev_es sev_snp debug_swap
	tpr_shadow vnmi flexpriority ept vpid ept_ad vmmcall
	cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local split_lock_detect user_shstk`)

// missingFlags returns the flags of the saved CPU that the other one has not, but for
// linuxFlags.
func missingFlags(saved, has string) (missing []string) {
	ignored := append(strings.Fields(cpuLine(has, "flags")), linuxFlags...)
	for _, flag := range strings.Fields(cpuLine(saved, "flags")) {
		if !slices.Contains(ignored, flag) {
			missing = append(missing, flag)
		}
	}
	return missing
}
