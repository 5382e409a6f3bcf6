"""Completion statuses, with the status code type above the low byte."""

from __future__ import annotations


class Status(Exception):
    """Raised to refuse a command with this status."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number:03X}h")
        self.number = number


INVALID_OPCODE, INVALID_FIELD, INVALID_NAMESPACE, OUT_OF_RANGE = 0x001, 0x002, 0x00B, 0x080
SANITIZE_FAILED, SANITIZE_UNDER_WAY = 0x01C, 0x01D
