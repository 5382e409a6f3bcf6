"""Checks of the machine's tracing support: each has a state, a finding and a fix. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.errors import OpwatchError, PermissionMissing, Unsupported, UsageError

# Tracepoints required for watching. The kernel's types name them btf_trace_...
NEEDED = (
    "block_rq_issue",
    "block_rq_complete",
    "block_rq_requeue",
    "block_bio_queue",
    "block_bio_complete",
)
QUEUE_START = "block_io_start"
# Debian's kernel package suffix by machine (uname -m).
_KERNEL_PACKAGES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "powerpc64le"}


# No command fixes a program refused by the kernel: a bug in opwatch.
REPORT_HINT = "report it as a bug, with the output of opwatch doctor --json"


class State(enum.StrEnum):
    OK = "ok"
    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `fix` is a command, if any. `exit_status` applies to tracing attempts; 0 if
    the problem does not prevent tracing. `log` has the kernel's messages."""

    name: str
    state: State
    finding: str
    fix: str | None = None
    exit_status: int = 0
    log: str | None = None


def make_ok(name: str, finding: str) -> Check:
    return Check(name, State.OK, finding)


def make_note(name: str, finding: str, fix: str | None = None) -> Check:
    return Check(name, State.NOTE, finding, fix)


def make_problem(name: str, finding: str, fix: str | None, exit_status: int, log: str | None = None) -> Check:
    return Check(name, State.PROBLEM, finding, fix, exit_status, log)


def check_kernel(release: str, machine: str, btf: bytes | None) -> Check:
    """Check that the kernel has BTF. Checks features instead of the kernel's version."""
    if btf:
        return make_ok("kernel", f"Linux {release}, with type information (BTF, {len(btf) / 1e6:.1f} MB)")
    return make_problem(
        "kernel",
        f"Linux {release} has no type information: there is no /sys/kernel/btf/vmlinux "
        "(CONFIG_DEBUG_INFO_BTF). Boot a kernel with BTF.",
        _kernel_install_command(machine),
        Unsupported.exit_status,
    )


def _kernel_install_command(machine: str) -> str:
    return f"sudo apt-get install linux-image-{_KERNEL_PACKAGES.get(machine, machine)} && sudo reboot"


def has_name(btf: bytes, name: str) -> bool:
    """Return True if a type or a type's member has the name."""
    return b"\0" + name.encode() + b"\0" in btf


def check_tracepoints(btf: bytes | None, machine: str) -> Check:
    """Check that the kernel has the tracepoints for the programs."""
    if not btf:
        return make_note("tracepoints", "unknown without BTF")
    missing = [name for name in NEEDED if not has_name(btf, f"btf_trace_{name}")]
    if missing:
        return make_problem(
            "tracepoints",
            f"this kernel lacks {', '.join(missing)}: it is older than Linux 5.15 or built without "
            "the block layer's tracepoints (CONFIG_TRACEPOINTS)",
            _kernel_install_command(machine),
            Unsupported.exit_status,
        )
    if not has_name(btf, f"btf_trace_{QUEUE_START}"):
        return make_ok(
            "tracepoints",
            f"all {len(NEEDED)} required; no {QUEUE_START}, so --queue uses the kernel's own timestamps",
        )
    return make_ok("tracepoints", f"all {len(NEEDED)} required, and {QUEUE_START} for --queue")


def check_loss_counters(btf: bytes | None) -> Check:
    """Check that the kernel counts skipped program runs."""
    if not btf:
        return make_note("losses", "unknown without BTF")
    if has_name(btf, "recursion_misses"):
        return make_ok("losses", "the kernel counts the program runs that it skips")
    return make_note(
        "losses", "this kernel does not count the program runs that it skips: such losses go unnoticed"
    )


def check_capabilities(missing: Sequence[str], command: str, *, is_root: bool) -> Check:
    """Check the privileges. `missing` lists CAP_BPF and CAP_PERFMON, if the process lacks them."""
    if not missing:
        return make_ok("capabilities", "CAP_BPF and CAP_PERFMON are held")
    if is_root:
        return make_problem(
            "capabilities",
            f"{' and '.join(missing)} missing, although running as root: run opwatch outside the container, "
            "or add these capabilities to the container",
            "podman run --cap-add=BPF,PERFMON ...",
            PermissionMissing.exit_status,
        )
    return make_problem(
        "capabilities",
        f"{' and '.join(missing)} missing: run as root, or set AmbientCapabilities=CAP_BPF CAP_PERFMON in a "
        "systemd unit",
        f"sudo {command}",
        PermissionMissing.exit_status,
    )


def check_lockdown(text: str | None, *, securityfs: bool) -> Check:
    """Check the lockdown mode. `text` is /sys/kernel/security/lockdown: none [integrity] confidentiality."""
    if text is None:
        if securityfs:
            return make_ok("lockdown", "this kernel has no lockdown")
        return make_note(
            "lockdown",
            "unknown: securityfs is not mounted",
            "sudo mount -t securityfs securityfs /sys/kernel/security",
        )
    bracketed = re.search(r"\[(\w+)\]", text)
    mode = bracketed[1] if bracketed else "unknown"
    if mode == "confidentiality":
        return make_problem(
            "lockdown",
            "confidentiality: BPF programs cannot read kernel memory",
            "boot with lockdown=integrity on the kernel command line",
            Unsupported.exit_status,
        )
    return make_ok("lockdown", f"{mode}: does not prevent tracing")


def check_jit(text: str | None) -> Check:
    """Check the BPF JIT. `text` is net.core.bpf_jit_enable, or None if unreadable for the user."""
    if text is None:
        return make_note("bpf jit", "unknown: net.core.bpf_jit_enable could not be read")
    if text == "0":
        return make_problem(
            "bpf jit",
            "off: programs are interpreted, at several times the cost",
            "sudo sysctl -w net.core.bpf_jit_enable=1",
            0,
        )
    return make_ok("bpf jit", "on")


@dataclass(frozen=True, slots=True)
class Extension:
    """The state of opwatch._native: `error` is the reason of a failed import."""

    error: str | None
    has_tracer: bool


_LIBRARY_PACKAGES = {"libbpf": "libbpf1", "libelf": "libelf1", "libz": "zlib1g"}


def check_extension(built: Extension, packages: Sequence[str], rebuild: str) -> Check:
    """Check the extension. `packages` are missing for the build; `rebuild` is the build and install
    command."""
    if built.has_tracer:
        return make_ok("extension", "opwatch._native is installed, with the tracer")
    for library, package in _LIBRARY_PACKAGES.items():
        if built.error and f"{library}.so" in built.error:
            return make_problem("extension", built.error, f"sudo apt-get install {package}", 1)
    what = (
        f"opwatch._native cannot be loaded ({built.error})"
        if built.error
        else "opwatch._native was built without the tracer"
    )
    if not packages:
        return make_problem("extension", f"{what}; everything needed to build it is installed", rebuild, 1)
    install = f"sudo apt-get install {' '.join(packages)}"
    return make_problem(
        "extension", f"{what}; missing for the build: {', '.join(packages)}", f"{install} && {rebuild}", 1
    )


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of loading a set of programs: skipped runs by program name, or an error."""

    hooks: str
    misses: dict[str, int]
    error: OpwatchError | None = None
    log: str = ""

    @property
    def rejected_programs(self) -> set[str]:
        """Return the refused programs in libbpf's log; a raw_tp twin by the name of the typed program."""
        refused = re.findall(r"prog '(\w+)': (?:BPF program load failed|failed to (?:load|attach))", self.log)
        return {name.removesuffix("_raw") for name in refused}


def _check_failed_load(name: str, attempt: Attempt, what: str) -> Check:
    """Return the check of a program in a set that could not be loaded."""
    assert attempt.error
    if isinstance(attempt.error, PermissionMissing):
        # Attempts are made only with the capabilities.
        finding = "refused although the capabilities are held: a container, seccomp or lockdown prevents it"
        return make_problem(name, what + finding, None, attempt.error.exit_status, attempt.log or None)
    if isinstance(attempt.error, Unsupported):
        return make_problem(
            name, what + str(attempt.error), None, attempt.error.exit_status, attempt.log or None
        )
    culprits = attempt.rejected_programs
    if culprits and name.removeprefix("probe ") not in culprits:
        return make_note(name, f"{what}not tried: it is loaded together with {', '.join(sorted(culprits))}")
    return make_problem(name, f"{what}rejected: {attempt.error}", REPORT_HINT, 1, attempt.log or None)


def check_program(name: str, first: Attempt, twin: Attempt) -> Check:
    """Return the check of a program. `first` is opwatch's normal load, `twin` the attempt with raw_tp
    forced."""
    title = f"probe {name}"
    if first.error:
        return _check_failed_load(title, first, "")
    if name not in first.misses:
        return make_note(title, "missing: this kernel lacks its tracepoint")
    if first.hooks != "tp_btf":
        return make_note(title, "loaded (raw_tp twin): the kernel refuses the tp_btf program")
    if twin.error:
        return _check_failed_load(title, twin, "loaded (tp_btf), but the raw_tp twin was ")
    misses = first.misses[name]
    return make_ok(
        title, "loaded (tp_btf; raw_tp twin loads)" + (f", {misses} runs skipped" if misses else "")
    )


# Meaning of each exit status, most severe first. The first match is used.
_VERDICTS = {
    Unsupported.exit_status: "opwatch cannot trace this kernel: see the problems above.",
    1: "Tracing does not work here, or only partly: see the problems above.",
    UsageError.exit_status: "The settings file is not valid: see the problem above.",
    PermissionMissing.exit_status: "Privileges are missing, so some checks were skipped. Run opwatch doctor "
    "again with these privileges.",
}


def summarize_checks(checks: Sequence[Check]) -> tuple[int, str]:
    """Return the exit status and a sentence with the meaning."""
    statuses = {check.exit_status for check in checks}
    for status, words in _VERDICTS.items():
        if status in statuses:
            return status, words
    return 0, "Tracing works here."
