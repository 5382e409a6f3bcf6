"""The sockets of --web.listen-address, or those that systemd passes."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping, Sequence

from opwatch.errors import OpwatchError, UsageError

DEFAULT_PORT = 9854
_BACKLOG = 128
# The first descriptor that systemd passes, sd_listen_fds(3).
_FIRST_FD = 3
_PORT = "[0-9]{1,5}"


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of HOST:PORT, [IPv6]:PORT or :PORT. An empty host means all addresses."""
    match = re.fullmatch(rf"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\[\]:]*)):({_PORT})", text, re.ASCII)
    if not match or int(match[3]) > 65535:
        raise UsageError(
            f"{text!r} is not an address to listen on: write :9854, 127.0.0.1:9854 or [::1]:9854, "
            "with a port up to 65535"
        )
    return match[1] or match[2] or "", int(match[3])


def format_address(address: Sequence[object]) -> str:
    """Return a bound address as it is written in a URL."""
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_listeners(addresses: Sequence[str]) -> list[socket.socket]:
    """Return a listening socket for each address, or none and the reason as an OpwatchError."""
    listeners: list[socket.socket] = []
    try:
        for text in addresses:
            listeners += _listen(text)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listen(text: str) -> list[socket.socket]:
    host, port = parse_address(text)
    if not host:
        return [_listen_everywhere(text, port)]
    # Names as bytes are not converted by the codec "idna", which takes 0.3 MB of memory.
    name = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"cannot listen on {text}: {error.strerror}") from None
    except UnicodeError:
        raise UsageError(f"cannot listen on {text}: that is not the name of a host") from None
    listeners: list[socket.socket] = []
    # A name may have several addresses.
    for family, _, _, _, address in dict.fromkeys(found):
        # Port 0 is chosen once, and is the same for each address.
        number = listeners[0].getsockname()[1] if listeners and not port else port
        listeners.append(_bind(family, (address[0], number, *address[2:]), text, only_v6=True))
    return listeners


def _listen_everywhere(text: str, port: int) -> socket.socket:
    """Return a socket for IPv6 and IPv4, or for IPv4 alone if the kernel has no IPv6."""
    if socket.has_ipv6:
        try:
            return _bind(socket.AF_INET6, ("::", port), text, only_v6=False)
        except OpwatchError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return _bind(socket.AF_INET, ("", port), text, only_v6=False)


def _bind(family: int, address: tuple[object, ...], text: str, *, only_v6: bool) -> socket.socket:
    listener: socket.socket | None = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_v6))
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        if listener:
            listener.close()
        raise OpwatchError(_explain(text, error)) from error
    return listener


def _explain(text: str, error: OSError) -> str:
    hint = {
        errno.EADDRINUSE: "another process listens there; stop it, or choose another port with "
        "--web.listen-address",
        errno.EACCES: "ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one",
        errno.EADDRNOTAVAIL: "this machine does not have that address",
    }.get(error.errno or 0, error.strerror)
    return f"cannot listen on {text}: {hint}"


def take_systemd_sockets(environment: Mapping[str, str]) -> list[socket.socket]:
    """Return the sockets that systemd passes to this process, as in sd_listen_fds(3)."""
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(os.getpid()) or not re.fullmatch("[1-9][0-9]{0,2}", count):
        raise UsageError(
            "--web.systemd-socket: systemd passed no socket; start the exporter by a socket unit, not by its "
            "service alone"
        )
    listeners = []
    for number in range(_FIRST_FD, _FIRST_FD + int(count)):
        try:
            os.set_inheritable(number, False)
            listener = socket.socket(fileno=number)
        except OSError as error:
            raise UsageError(f"--web.systemd-socket: descriptor {number}: {error.strerror}") from None
        if listener.type != socket.SOCK_STREAM or not listener.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        ):
            raise UsageError(f"--web.systemd-socket: descriptor {number} is not a listening stream socket")
        listeners.append(listener)
    return listeners
