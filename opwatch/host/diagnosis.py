"""What a machine offers for tracing, judged: each check has a state, a finding in words and a fix. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.frozen import frozen

# Tracepoints that watching needs. The kernel's types name them btf_trace_...
NEEDED = (
    "block_rq_issue",
    "block_rq_complete",
    "block_rq_requeue",
    "block_bio_queue",
    "block_bio_complete",
)
QUEUE_START = "block_io_start"
# Names that Debian gives to its kernels for the machines of uname -m.
_KERNEL_PACKAGES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "powerpc64le"}


# No command mends a program that the kernel refuses: it is a bug of ours.
REPORT = "report it as a bug, with the output of opwatch doctor --json"


class State(enum.StrEnum):
    OK = "ok"
    PROBLEM = "problem"
    NOTE = "note"


@frozen
class Check:
    """What was found out of one thing. `fix` is a command where there is one. `exit_status` is what it means
    for tracing; 0 for a problem that does not prevent it. `log` is what the kernel said."""

    name: str
    state: State
    finding: str
    fix: str | None = None
    exit_status: int = 0
    log: str | None = None


def ok(name: str, finding: str) -> Check:
    return Check(name, State.OK, finding)


def note(name: str, finding: str, fix: str | None = None) -> Check:
    return Check(name, State.NOTE, finding, fix)


def problem(name: str, finding: str, fix: str | None, exit_status: int, log: str | None = None) -> Check:
    return Check(name, State.PROBLEM, finding, fix, exit_status, log)


def kernel(release: str, machine: str, btf: bytes | None) -> Check:
    """Whether the kernel tells its types. No version is compared: what is needed is looked for."""
    if btf:
        return ok("kernel", f"Linux {release}, with its types (BTF, {len(btf) / 1e6:.1f} MB)")
    return problem(
        "kernel",
        f"Linux {release} does not tell its types: there is no /sys/kernel/btf/vmlinux "
        "(CONFIG_DEBUG_INFO_BTF). Boot a kernel that does.",
        _other_kernel(machine),
        Unsupported.exit_status,
    )


def _other_kernel(machine: str) -> str:
    return f"sudo apt-get install linux-image-{_KERNEL_PACKAGES.get(machine, machine)} && sudo reboot"


def has_name(btf: bytes, name: str) -> bool:
    """Whether a type, or a member of one, has this name."""
    return b"\0" + name.encode() + b"\0" in btf


def tracepoints(btf: bytes | None, machine: str) -> Check:
    """Whether the tracepoints are there that the programs attach to."""
    if not btf:
        return note("tracepoints", "unknown without BTF")
    missing = [name for name in NEEDED if not has_name(btf, f"btf_trace_{name}")]
    if missing:
        return problem(
            "tracepoints",
            f"this kernel lacks {', '.join(missing)}: it is older than Linux 5.15 or built without "
            "the block layer's tracepoints (CONFIG_TRACEPOINTS)",
            _other_kernel(machine),
            Unsupported.exit_status,
        )
    if not has_name(btf, f"btf_trace_{QUEUE_START}"):
        return ok(
            "tracepoints",
            f"all {len(NEEDED)} needed; no {QUEUE_START}, so --queue uses the kernel's own stamps",
        )
    return ok("tracepoints", f"all {len(NEEDED)} needed, and {QUEUE_START} for --queue")


def losses(btf: bytes | None) -> Check:
    """Whether the kernel tells how often it skipped a program."""
    if not btf:
        return note("losses", "unknown without BTF")
    if has_name(btf, "recursion_misses"):
        return ok("losses", "the kernel counts the runs it skips")
    return note("losses", "this kernel does not count the runs it skips: such a loss would go unseen")


def capabilities(missing: Sequence[str], command: str, *, is_root: bool) -> Check:
    """Check the privileges. `missing` are those of CAP_BPF and CAP_PERFMON that this process lacks."""
    if not missing:
        return ok("capabilities", "CAP_BPF and CAP_PERFMON are held")
    if is_root:
        return problem(
            "capabilities",
            f"{' and '.join(missing)} missing, although this is root: run it outside of the container, or "
            "give the container these",
            "podman run --cap-add=BPF,PERFMON ...",
            PermissionMissing.exit_status,
        )
    return problem(
        "capabilities",
        f"{' and '.join(missing)} missing: run as root, or give a systemd unit "
        "AmbientCapabilities=CAP_BPF CAP_PERFMON",
        f"sudo {command}",
        PermissionMissing.exit_status,
    )


def lockdown(text: str | None, *, securityfs: bool) -> Check:
    """Check the lockdown. `text` is /sys/kernel/security/lockdown: none [integrity] confidentiality."""
    if text is None:
        if securityfs:
            return ok("lockdown", "this kernel has none")
        return note(
            "lockdown",
            "unknown: securityfs is not mounted",
            "sudo mount -t securityfs securityfs /sys/kernel/security",
        )
    bracketed = re.search(r"\[(\w+)\]", text)
    mode = bracketed[1] if bracketed else "unknown"
    if mode == "confidentiality":
        return problem(
            "lockdown",
            "confidentiality: the kernel lets no BPF program read its memory",
            "boot with lockdown=integrity in the kernel command line",
            Unsupported.exit_status,
        )
    return ok("lockdown", f"{mode}: does not hinder tracing")


def jit(text: str | None) -> Check:
    """Check the compiler of BPF. `text` is net.core.bpf_jit_enable, None when this user may not read it."""
    if text is None:
        return note("bpf jit", "unknown: net.core.bpf_jit_enable could not be read")
    if text == "0":
        return problem(
            "bpf jit",
            "off: programs are interpreted and cost several times as much",
            "sudo sysctl -w net.core.bpf_jit_enable=1",
            0,
        )
    return ok("bpf jit", "on")


@frozen
class Extension:
    """The state of opwatch._native: `error` is why it cannot be imported."""

    error: str | None
    has_tracer: bool


_SHARED = {"libbpf": "libbpf1", "libelf": "libelf1", "libz": "zlib1g"}


def extension(built: Extension, packages: Sequence[str], rebuild: str) -> Check:
    """Check the extension. `packages` are those that the build lacks; `rebuild` is the command that builds
    and installs."""
    if built.has_tracer:
        return ok("extension", "opwatch._native is there, with the tracer")
    for library, package in _SHARED.items():
        if built.error and f"{library}.so" in built.error:
            return problem("extension", built.error, f"sudo apt-get install {package}", 1)
    what = (
        f"opwatch._native cannot be loaded ({built.error})"
        if built.error
        else "opwatch._native was built without the tracer"
    )
    if not packages:
        return problem("extension", f"{what}; all that its build needs is there", rebuild, 1)
    install = f"sudo apt-get install {' '.join(packages)}"
    return problem(
        "extension", f"{what}; its build lacks {', '.join(packages)}", f"{install} && {rebuild}", 1
    )


@frozen
class Attempt:
    """What came of loading one set of programs: their names with the runs that the kernel skipped, or an
    error."""

    hooks: str
    misses: dict[str, int]
    error: OpwatchError | None = None
    log: str = ""

    @property
    def rejected(self) -> set[str]:
        """Programs that libbpf's log names as refused; raw_tp twins by the name of their typed one."""
        refused = re.findall(r"prog '(\w+)': (?:BPF program load failed|failed to (?:load|attach))", self.log)
        return {name.removesuffix("_raw") for name in refused}


def _failed(name: str, attempt: Attempt, what: str) -> Check:
    """A program of a set that could not be loaded."""
    assert attempt.error
    if isinstance(attempt.error, PermissionMissing):
        # Nobody tries without the capabilities.
        finding = "refused although the capabilities are held: a container, seccomp or lockdown forbids it"
        return problem(name, what + finding, None, attempt.error.exit_status, attempt.log or None)
    if isinstance(attempt.error, Unsupported):
        return problem(name, what + str(attempt.error), None, attempt.error.exit_status, attempt.log or None)
    culprits = attempt.rejected
    if culprits and name.removeprefix("probe ") not in culprits:
        return note(name, f"{what}not tried: it is loaded together with {', '.join(sorted(culprits))}")
    return problem(name, f"{what}rejected: {attempt.error}", REPORT, 1, attempt.log or None)


def program(name: str, first: Attempt, twin: Attempt) -> Check:
    """One program: `first` is how opwatch loads it, `twin` the attempt with raw_tp enforced."""
    title = f"probe {name}"
    if first.error:
        return _failed(title, first, "")
    if name not in first.misses:
        return note(title, "missing: this kernel lacks its tracepoint")
    if first.hooks != "tp_btf":
        return note(title, "loaded (raw_tp twin): the kernel refuses the tp_btf program")
    if twin.error:
        return _failed(title, twin, "loaded (tp_btf), but the raw_tp twin was ")
    misses = first.misses[name]
    return ok(title, "loaded (tp_btf; raw_tp twin loads)" + (f", {misses} runs skipped" if misses else ""))


# What a status means, the gravest first: it decides.
_VERDICTS = {
    Unsupported.exit_status: "This kernel cannot be traced by opwatch: see the problems above.",
    1: "Tracing does not work here, or not fully: see the problems above.",
    PermissionMissing.exit_status: "Privileges are missing. Run it again with them: what needs them was "
    "not tried.",
}


def verdict(checks: Sequence[Check]) -> tuple[int, str]:
    """The exit status and what it means, in a sentence."""
    statuses = {check.exit_status for check in checks}
    for status, words in _VERDICTS.items():
        if status in statuses:
            return status, words
    return 0, "Tracing works here."
