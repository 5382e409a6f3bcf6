"""An NVMe drive with namespace management, over TCP on this machine, for Linux's own driver."""
