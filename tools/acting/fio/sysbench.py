"""Run sysbench on an unnamed file: start, watch, stop, and parse its result."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from opwatch.closing import Closable
from opwatch.errors import OpwatchError, Unsupported
from opwatch.foreign import decode_text, split_lines
from opwatch.host.process import die_with_parent
from opwatch.load.sysbench import SysbenchResult, parse_sysbench
from opwatch.tools.acting.fio.child import MeteredChild

_STDERR_BYTES = 1 << 16
# Name of the file that sysbench opens before starting threads.
_NAME = "test_file.0"
_OPENS_WITHIN_S = 10.0
_PATIENCE_S = 5.0


def require_sysbench() -> str:
    """Return the path of sysbench, or raise Unsupported with install advice."""
    program = shutil.which("sysbench")
    if not program:
        raise Unsupported(
            "--load sysbench: it is not installed (Debian: apt install sysbench); without --load, fio "
            "makes the same load"
        )
    return program


class SysbenchProcess(Closable):
    """Running sysbench process that dies with us.

    The folder with its file is removed once sysbench has opened the file, so nothing remains however we end.
    """

    def __init__(self, words: Sequence[str], path: str) -> None:
        """Start sysbench with the load file at `path`."""
        argv = [require_sysbench(), *words]
        self._said = os.memfd_create("sysbench-said", os.MFD_CLOEXEC)
        self._was_stopped = False
        self.begin_ns = time.monotonic_ns()
        folder = Path(tempfile.mkdtemp(prefix="opwatch-sysbench-"))
        try:
            (folder / _NAME).symlink_to(path)
            self.process = MeteredChild(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                cwd=folder,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
            self._await_open(path)
        except BaseException:
            os.close(self._said)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _await_open(self, path: str) -> None:
        wanted, deadline = Path(path).stat(), time.monotonic() + _OPENS_WITHIN_S
        while self.process.poll() is None and time.monotonic() < deadline:
            for link in _list_descriptors(self.process.pid):
                with contextlib.suppress(OSError):
                    if os.path.samestat(link.stat(), wanted):
                        return
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop sysbench. Its report is not needed."""
        self._was_stopped = True
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE_S)
            return
        self.process.kill()
        self.process.wait()

    def wait_for_result(self) -> tuple[SysbenchResult, float, int]:
        """Return (result, CPU seconds, monotonic end time)."""
        status, end_ns = self.process.wait(), time.monotonic_ns()
        os.lseek(self._said, 0, os.SEEK_SET)
        text = decode_text(os.read(self._said, _STDERR_BYTES))
        if status:
            fatal = [line for line in split_lines(text) if line.startswith("FATAL")]
            raise OpwatchError(f"sysbench failed (status {status}): {fatal[0] if fatal else 'no message'}")
        return parse_sysbench(text, "sysbench"), self.process.cpu_s, end_ns

    def close(self) -> None:
        """Kill sysbench if it still runs, and clean up."""
        if self._said < 0:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._said)
        self._said = -1


def _list_descriptors(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/fd").iterdir())
    return []
