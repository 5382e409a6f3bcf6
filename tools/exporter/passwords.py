"""Basic authentication with bcrypt hashes, checked by the system's libcrypt in a thread.

A check takes 50 ms of CPU time and more. The exporter must not stand still for it, so one thread makes one
check after the other, and results are kept.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from opwatch.errors import Unsupported
from opwatch.tools.exporter.threads import start_thread

# libxcrypt, by the names of Debian and of Fedora.
_LIBRARIES = ("libcrypt.so.1", "libcrypt.so.2", "libcrypt.so")
# Larger than struct crypt_data of libxcrypt (32 KiB) and of the older glibc (128 KiB).
_CRYPT_DATA_BYTES = 1 << 18
# A known hash, of the empty password at the lowest cost.
_PROBE = b"$2y$04$abcdefghijklmnopqrstuu"
_MAX_RESULTS, _MAX_WAITING = 100, 16
# bcrypt reads no more of a password.
_MAX_PASSWORD_BYTES = 72
# Compared for unknown users, so that the time does not tell which names exist.
_NOBODY = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

Verdict = Callable[[bool], None]


class BcryptLibrary:
    """The function crypt_r() of the system's library."""

    def __init__(self) -> None:
        """Raise Unsupported if the library is missing or has no bcrypt."""
        library = self._find_library()
        self._crypt = library.crypt_r
        self._crypt.restype = ctypes.c_char_p
        self._crypt.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
        self._data = ctypes.create_string_buffer(_CRYPT_DATA_BYTES)
        answer = self.hash_password(b"", _PROBE)
        if not answer.startswith(_PROBE[:28]):
            raise Unsupported(
                "basic_auth_users: libcrypt of this system does not know bcrypt ($2y$); install libxcrypt, "
                "or let a proxy check passwords"
            )

    @staticmethod
    def _find_library() -> ctypes.CDLL:
        for name in _LIBRARIES:
            try:
                library = ctypes.CDLL(name)
            except OSError:
                continue
            if hasattr(library, "crypt_r"):
                return library
        raise Unsupported("basic_auth_users: this system has no libcrypt with crypt_r (install libcrypt1)")

    def hash_password(self, password: bytes, setting: bytes) -> bytes:
        """Return the hash of a password with a setting's salt, empty if that fails. One call at a time."""
        ctypes.memset(self._data, 0, _CRYPT_DATA_BYTES)
        answer: bytes | None = self._crypt(password, setting, self._data)
        ctypes.memset(self._data, 0, _CRYPT_DATA_BYTES)
        return answer or b""

    def matches(self, password: bytes, hashed: str) -> bool:
        # A password with a null byte would be compared only up to it.
        if b"\0" in password or len(password) > _MAX_PASSWORD_BYTES:
            password, is_possible = b"", False
        else:
            is_possible = True
        answer = self.hash_password(password, hashed.encode())
        return is_possible and len(answer) == 60 and hmac.compare_digest(answer, hashed.encode())


class LoginChecker:
    """Checks the header Authorization for a set of users. Verdicts are given in the loop's thread."""

    def __init__(self, users: Mapping[str, str], call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._users, self._call_soon = dict(users), call_soon
        self._library = BcryptLibrary()
        # Digests of headers, keyed by a secret, with their verdicts. The oldest are dropped.
        self._secret = os.urandom(16)
        self._results: OrderedDict[bytes, bool] = OrderedDict()
        self._waiting: SimpleQueue[tuple[bytes, str, bytes, Verdict] | None] = SimpleQueue()
        start_thread("passwords", self._check_waiting)

    def check(self, authorization: str, verdict: Verdict) -> bool:
        """Give the verdict now or later. Return False if too many checks are waiting."""
        login = parse_basic(authorization)
        if login is None:
            verdict(False)
            return True
        name, password = login
        digest = hashlib.blake2b(authorization.encode("latin-1"), key=self._secret, digest_size=32).digest()
        known = self._results.get(digest)
        if known is not None:
            self._results.move_to_end(digest)
            verdict(known)
            return True
        if self._waiting.qsize() >= _MAX_WAITING:
            return False
        self._waiting.put((digest, name, password, verdict))
        return True

    def _check_waiting(self) -> None:
        while item := self._waiting.get():
            digest, name, password, verdict = item
            hashed = self._users.get(name)
            # Clients that repeat a wrong password wait for one check, too.
            known = self._results.get(digest)
            is_right = known if known is not None else self._library.matches(password, hashed or _NOBODY)
            is_right = is_right and hashed is not None
            self._call_soon(lambda d=digest, r=is_right, v=verdict: self._keep(d, r, v))  # type: ignore[misc]

    def _keep(self, digest: bytes, is_right: bool, verdict: Verdict) -> None:
        # Wrong passwords must not drive out the right ones.
        if is_right:
            self._results[digest] = True
            if len(self._results) > _MAX_RESULTS:
                self._results.popitem(last=False)
        verdict(is_right)

    def close(self) -> None:
        """End the thread after the checks that are waiting. Each still gets its verdict."""
        self._waiting.put(None)


def parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """Return the name and the password of a header, or None if it is not for basic authentication."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (name.decode("utf-8", "replace"), password) if colon else None
