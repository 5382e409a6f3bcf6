"""The owners of requests: the issuing cgroup or process, in addition to a disk's totals."""
