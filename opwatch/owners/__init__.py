"""The owners of requests: the issuing cgroup or process, beside a disk's totals."""
