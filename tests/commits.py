"""Check commit subjects against CONTRIBUTING: `area: what`, 72 columns, then a blank line.

python3 -m tests.commits                  every commit since the rule is checked
python3 -m tests.commits --message FILE   one message, as git passes it to a hook
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

WIDTH = 72
# Older commits predate the check.
SINCE = "83534cb82bcb1cc780c4a1b5f14835b5c68265cc"
_SUBJECT = re.compile(r"[a-z_][\w .,/{}*-]*: [^\s].*[^\s.]")


def find_faults(message: str) -> list[str]:
    """Return the faults of one message; empty if correct."""
    subject, *body = message.rstrip("\n").split("\n")
    wrong = []
    if len(subject) > WIDTH:
        wrong.append(f"is {len(subject)} columns wide, {WIDTH} are the most")
    if not _SUBJECT.fullmatch(subject):
        wrong.append("is not `area: what`, without a full stop")
    if body and body[0]:
        wrong.append("has no blank line below it")
    return [f"{subject!r} {fault}" for fault in wrong]


def read_messages_since(base: str) -> list[str]:
    """Return the messages of the commits after `base`, newest first; empty if the clone lacks `base`."""
    if subprocess.run(["git", "cat-file", "-e", base], check=False, capture_output=True).returncode:
        print(f"commit: {base} is not in this clone: subjects are not checked", file=sys.stderr)
        return []
    log = subprocess.check_output(["git", "log", "--format=%B%x00", f"{base}..HEAD"], text=True)
    return [message.lstrip("\n") for message in log.split("\0") if message.strip()]


def main(arguments: list[str]) -> int:
    """Return 1 if a message breaks the rule, otherwise 0."""
    if arguments[:1] == ["--message"]:
        lines = Path(arguments[1]).read_text(errors="replace").split("\n")
        messages = ["\n".join(line for line in lines if not line.startswith("#"))]
    else:
        messages = read_messages_since(SINCE)
    wrong = [fault for message in messages for fault in find_faults(message)]
    for fault in wrong:
        print(f"commit: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
