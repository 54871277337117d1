// Package chaos is the suite that kills. At each of seventeen moments of a pod's
// life it kills, by SIGKILL or worse, each of the processes that serve the pod:
// QEMU, virtiofsd, the agent in the guest, the shim, containerd. At each moment
// it also stops one of them, by SIGSTOP. Then it checks what matters to a user:
// did each Wait return, did each process exit exactly once and with a correct
// code, and is nothing left behind?
//
//	moment ──> strike ──> answers ──> cleaning up ──> judgement
//	 (the operation of     (every call  (by ordinary    (exits counted, host
//	  the moment is        and Wait      means)          compared with before)
//	  under way)           returns)
//
// victims_test.go and stops_test.go have what is expected of each pair,
// moments_test.go and late_test.go the moments; those of hibernation are in
// hibernate_test.go, those of checkpoints in saving_test.go and restoring_test.go.
// A run prints the table of moments and victims at its end. Where pods start from
// templates (harness.EnvTemplate) there is one moment more. KATABOX_CHAOS_ROUNDS
// repeats every pair with SIGKILL and plays the others with SIGSTOP,
// KATABOX_CHAOS_SEED repeats a run's random delays and choices;
// KATABOX_CHAOS_ONE_IN=2 plays only one in two pairs; -short plays a selection of
// them.
package chaos
