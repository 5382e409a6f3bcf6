"""Child process with measured CPU time, independent of other children."""

from __future__ import annotations

import os
import select
import subprocess


class MeteredChild(subprocess.Popen[bytes]):
    """Child with CPU times `user_s` and `system_s`, known after it has ended.

    The times include descendants that were waited for. RUSAGE_CHILDREN would include other children, e.g.
    smartctl.
    """

    user_s = system_s = 0.0

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.user_s, self.system_s = usage.ru_utime, usage.ru_stime
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            ending = select.poll()
            descriptor = os.pidfd_open(self.pid)
            try:
                ending.register(descriptor, select.POLLIN)
                ending.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(descriptor)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status
