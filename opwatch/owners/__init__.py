"""The owners of requests: the cgroup or process that issued them, beside a disk's totals."""
