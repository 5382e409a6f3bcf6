"""Options pass unchanged to the exporter's process, and addresses are read or refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError, UsageError
from opwatch.tools.exporter.launch import LaunchOptions
from opwatch.tools.exporter.lean import DeferredModule
from opwatch.tools.exporter.listening import (
    format_address,
    open_listeners,
    parse_address,
    take_systemd_sockets,
)
from tests.bench.idle_interpreter import list_standard_modules


def test_options_survive_as_words() -> None:
    plain = LaunchOptions()
    assert LaunchOptions.from_words(plain.to_words()) == plain
    changed = LaunchOptions(
        listen=("[::1]:0", ":9"),
        dev=("a=b", "c d\n"),
        web_config="/x=y",
        systemd_socket=True,
        queue=True,
        by="cgroup",
        drives_every_s=0.0,
        deadline_s=0.5,
        series_limit=7,
        broker="none",
        trim=True,
        otlp="http://a?b=c",
        otlp_every_s=5.0,
    )
    assert LaunchOptions.from_words(changed.to_words()) == changed
    # Each option was changed above.
    assert all(getattr(plain, one.name) != getattr(changed, one.name) for one in fields(plain))
    assert replace(changed, queue=False) != changed


@pytest.mark.parametrize(
    ("text", "expected"),
    [(":9854", ("", 9854)), ("a.example:0", ("a.example", 0)), ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80))],
)
def test_address_is_read(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "9854", "a", "a:", "::1:80", "[::1]", ":65536", ":-1", ":٣", "a:80 "])
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_each_address_is_listened_on() -> None:
    listeners = open_listeners(["127.0.0.1:0", "localhost:0"])
    try:
        for listener in listeners:
            address = listener.getsockname()
            with socket.create_connection(address[:2], 5):
                pass
            assert format_address(address).endswith(f":{address[1]}")
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_invalid_host_name_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="cannot listen on"):
        open_listeners([f"{host}:0"])


def test_one_address_in_use_opens_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OpwatchError, match="another process"):
            open_listeners(["127.0.0.1:0", f"127.0.0.1:{port}"])


@pytest.mark.parametrize("environment", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_FDS": "x"}])
def test_missing_systemd_socket_is_reported(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="systemd"):
        take_systemd_sockets(environment)


def test_missing_descriptor_of_systemd_is_reported() -> None:
    child = os.fork()
    if not child:
        try:
            os.closerange(3, 4)
            take_systemd_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
        except UsageError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_exporter_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    script, folder = tmp_path / "bin" / "opwatch", tmp_path / "work"
    for path in (script.parent, folder):
        path.mkdir()
    script.write_text("from opwatch.__main__ import main\nmain()\n")
    (folder / "socket.py").write_text(f"open({str(tmp_path / 'planted')!r}, 'w')\n")
    command = [sys.executable, str(script), "exporter", "--broker", str(tmp_path / "no.sock")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    assert b"no broker listens" in done.stderr
    assert not (tmp_path / "planted").exists()


def test_reload_during_the_start_does_not_end_the_exporter(tmp_path: Path) -> None:
    path = str(tmp_path / "broker.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(60)
        command = [sys.executable, "-m", "opwatch", "exporter", "--broker", path]
        # Once it is connected, the exporter waits for the broker's answer.
        with subprocess.Popen(command, stderr=subprocess.PIPE) as exporter, listener.accept()[0]:
            exporter.send_signal(signal.SIGHUP)
            _, message = exporter.communicate(timeout=60)
    assert exporter.returncode == 1
    assert b"does not answer" in message


def test_deferred_module_is_imported_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "colorsys", DeferredModule("colorsys"))
    import colorsys

    assert isinstance(sys.modules["colorsys"], DeferredModule)
    assert colorsys.rgb_to_yiq(0, 0, 0) == (0, 0, 0)
    assert not isinstance(sys.modules["colorsys"], DeferredModule)
    with pytest.raises(AttributeError, match="no_name"):
        colorsys.no_name  # noqa: B018


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="dataclasses use inspect from Python 3.12 on")
def test_exporter_that_polls_drives_needs_no_inspect() -> None:
    assert not {"ast", "dis", "tokenize"} & set(list_standard_modules())


def test_released_memory_is_mapped_again() -> None:
    native = pytest.importorskip("opwatch._native")
    text = str(list(range(10_000)))
    native.release_memory()
    assert str(list(range(10_000))) == text
