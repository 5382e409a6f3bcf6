"""An NVMe drive that has namespace management, over TCP on this machine, for Linux's own driver."""
