"""An NVMe multipath head: the check follows it to the hidden path, and the trim arrives there."""

from __future__ import annotations

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.trims import mount_with_files, run_check, run_fstrim

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("nvme-multipath",)


def test_a_trim_arrives_at_the_hidden_paths() -> None:
    head = sysfs.disk("opw-nvme-multipath")
    paths = sysfs.list_paths(head)
    assert paths != [head]
    with mount_with_files("ext4", head) as point:
        forecast = run_check(point)
        layers = forecast.document["layers"]
        assert [layer["device"] for layer in layers] == [head, *paths]
        assert [layer["kind"] for layer in layers] == ["multipath", *["disk"] * len(paths)]
        assert (forecast.status, forecast.outlook) == (0, "reaches")
        assert sum(run_fstrim(point, *paths).arrived) == forecast.sent_bytes
