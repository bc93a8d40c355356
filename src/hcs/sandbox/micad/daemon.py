"""The emulated daemon: sockets, one request at a time, and the life of each guest.

One thread serves all sockets in turn, so a slow request delays every other, as with the real one. The directory is
wiped and made again at each start; guests of an earlier daemon go on and are not known any more.
"""

import contextlib
import os
import selectors
import shutil
import socket
import time
from pathlib import Path
from typing import Any, NoReturn

from hcs.sandbox.micad import layout
from hcs.sandbox.micad.consoles import Console
from hcs.sandbox.micad.domains import Domain, Hypervisor
from hcs.sandbox.micad.faults import Faults, Rule

CONTROL_BUFFER = 32
YES, NO = b"MICA-SUCCESS", b"MICA-FAILED"
HYPERVISED = {"xen"}


class Guest:
    """One guest the daemon knows."""

    listener: socket.socket

    def __init__(self, settings: dict[str, Any], file: Path) -> None:
        self.settings, self.file = settings, file
        self.name: str = settings["name"]
        self.cpu: str = settings["cpu_str"]
        self.state = "Offline"
        self.console: Console | None = None


class Refuse(Exception):  # noqa: N818 - it is an answer
    """The request fails, with this text before the marker."""


class Daemon:
    """The daemon; run :meth:`serve`."""

    def __init__(
        self,
        sockets: Path,
        *,
        state: Path,
        links: Path,
        console_delay: float = 0.2,
        start_seconds: float = 0.0,
        boot_seconds: float = 0.15,
        named_links: bool = False,
    ) -> None:
        """Wipe and make the directory of sockets, and listen.

        Args:
            sockets: the directory of sockets.
            state: where the emulated hypervisor keeps its files; ``faults.json`` in it makes things go wrong.
            links: where links to consoles go.
            console_delay: seconds from start to the console's link.
            start_seconds: how long a start takes.
            boot_seconds: seconds from the console's link to the guest's first word. Whoever has not turned echo off by
                then has the guest's own words sent back to it, as with the real daemon.
            named_links: whether links carry the guest's name, a build option of the real daemon.
        """
        self._sockets, self._links, self._named = sockets, links, named_links
        self._delay, self._start_seconds, self._boot = console_delay, start_seconds, boot_seconds
        self.hypervisor = Hypervisor(state)
        self._configs = state / "xen"
        self._configs.mkdir(exist_ok=True)
        self._faults = Faults(state / "faults.json")
        self._guests: dict[str, Guest] = {}
        self._selector = selectors.DefaultSelector()
        self._kept: list[socket.socket] = []
        shutil.rmtree(sockets, ignore_errors=True)
        sockets.mkdir(parents=True, mode=0o700)
        self._listen(sockets / "mica-create.socket", None)

    def serve(self, until: Any = None) -> None:
        """Serve until ``until`` (an event) is set; for ever without one."""
        while until is None or not until.is_set():
            for key, _ in self._selector.select(0.05 if until is not None else None):
                connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
                try:
                    self._answer(connection, key.data)
                except (BrokenPipeError, ConnectionResetError):
                    connection.close()

    def close(self) -> None:
        """End every guest and remove every socket."""
        for guest in list(self._guests.values()):
            self._stop(guest)
            self._forget(guest)
        for connection in self._kept:
            connection.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _listen(self, path: Path, guest: Guest | None) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            listener.listen(128)
        except OSError:
            listener.close()
            raise
        self._selector.register(listener, selectors.EVENT_READ, guest)
        return listener

    def _answer(self, connection: socket.socket, guest: Guest | None) -> None:
        if guest is None:
            received = connection.recv(layout.SIZE)
            settings = layout.read(received)
            request = f"create {settings['name']}"
        else:
            received = connection.recv(CONTROL_BUFFER - 1)
            words = received.split(b"\0")[0].decode(errors="replace")
            request = f"{words} ({guest.name})"
        self.hypervisor.record("request", request)
        rule = self._faults.of(request)
        if rule is not None and not self._before(rule, connection):
            return
        text, good = "", False
        try:
            if rule is not None and rule.fault == "fail":
                raise Refuse(rule.text)
            text = self._create(settings) if guest is None else self._control(guest, words)
            good = True
        except Refuse as refused:
            text = str(refused)
        if rule is not None and rule.fault == "die-after":
            self._die()
        self._reply(connection, text.encode() + (YES if good else NO), split=rule is not None and rule.fault == "split")
        if guest is not None and words == "rm" and good:
            self._forget(guest)

    def _before(self, rule: Rule, connection: socket.socket) -> bool:
        """Let go wrong what goes wrong before the request is looked at; False when that was all."""
        if rule.fault == "die":
            self._die()
        if rule.fault == "late":
            time.sleep(rule.seconds)
        if rule.fault == "no-reply":
            self._kept.append(connection)
            return False
        if rule.fault == "close":
            connection.close()
            return False
        return True

    def _reply(self, connection: socket.socket, raw: bytes, *, split: bool) -> None:
        with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in (raw[i : i + 1] for i in range(len(raw))) if split else (raw,):
                connection.sendall(piece)
                if split:
                    time.sleep(0.001)

    def _create(self, settings: dict[str, Any]) -> str:
        name, path = settings["name"], settings["path"]
        if not os.path.isfile(path):
            raise Refuse(f"No such file: {path}")
        if name in self._guests:
            raise Refuse(f"{name} is already created")
        if settings["ped"] == "xen" and (not settings["ped_cfg"] or settings["vcpu_num"] < 0 or settings["memory"] < 0):
            raise Refuse("")
        file = self._sockets / f"{name}.socket"
        guest = Guest(settings, file)
        try:
            guest.listener = self._listen(file, guest)
        except OSError as error:
            raise Refuse("") from error
        if settings["ped"] in HYPERVISED:
            self._config(name).write_text(_xen_config(settings))
        self._guests[name] = guest
        return ""

    def _control(self, guest: Guest, words: str) -> str:
        if words == "start":
            return self._start(guest)
        if words == "stop":
            self._stop(guest)
            return ""
        if words == "rm":
            self._stop(guest)
            return ""
        if words == "status":
            return self._status(guest)
        if words.startswith("set"):
            return self._set(guest, words)
        raise Refuse(f"Invalid command: {words}")

    def _start(self, guest: Guest) -> str:
        if guest.state == "Running":
            raise Refuse("")
        time.sleep(self._start_seconds)
        settings = guest.settings
        domain = Domain(
            guest.name,
            cpus=guest.cpu,
            vcpus=max(settings["vcpu_num"], 1),
            weight=settings["cpu_weight"] if settings["cpu_weight"] > 0 else 256,
            cap=max(settings["cpu_capacity"], 0),
            memory=settings["memory"],
            maxmem=max(settings["max_memory"], 0),
        )
        try:
            reader, writer = self.hypervisor.create(domain, settings["path"], self._delay + self._boot)
        except OSError as error:
            guest.state = "Error"
            raise Refuse("") from error
        guest.console = Console(
            self._link(guest.name),
            reader,
            writer,
            delay=self._delay,
            ended=lambda: self.hypervisor.await_end(guest.name),
        )
        guest.state = "Running"
        return ""

    def _stop(self, guest: Guest, state: str = "Offline") -> None:
        if guest.console is not None:
            guest.console.close()
            guest.console = None
        self.hypervisor.destroy(guest.name)
        guest.state = state

    def _status(self, guest: Guest) -> str:
        ended = self.hypervisor.ended(guest.name) if guest.state == "Running" else None
        if ended is not None and guest.console is not None and guest.console.announced.is_set():
            time.sleep(0.02)  # what it said last is on its way
            self._stop(guest, "Offline" if ended >= 0 else "Error")
        shown = guest.name if len(guest.name) <= 31 else f"{guest.name[:12]}...{guest.name[-1]}"
        services = ""
        if guest.console is not None and guest.console.announced.is_set():
            services = f"rpmsg-tty({guest.console.link}) rpmsg-rpc "
        return f"{shown:<30}{guest.cpu:<20}{guest.state:<20}{services}"

    def _set(self, guest: Guest, words: str) -> str:
        parts = words.split()
        if len(parts) != 3:
            raise Refuse("Invalid set command. Usage: set <key> <value>")
        _, key, value = parts
        if guest.settings["ped"] not in HYPERVISED or not self.hypervisor.set(guest.name, key.lower(), value):
            raise Refuse("")
        if key.lower() == "cpu":
            guest.cpu = value
        return ""

    def _forget(self, guest: Guest) -> None:
        self._guests.pop(guest.name, None)
        self._selector.unregister(guest.listener)
        guest.listener.close()
        guest.file.unlink(missing_ok=True)
        self._config(guest.name).unlink(missing_ok=True)

    def _config(self, name: str) -> Path:
        return self._configs / f"{name}-xen.cfg"

    def _link(self, name: str) -> Path:
        if self._named:
            safe = "".join(char if char.isalnum() or char in "_-" else "_" for char in name)
            return self._links / f"ttyRPMSG_{safe}_0"
        taken = {guest.console.link.name for guest in self._guests.values() if guest.console is not None}
        free = next((f"ttyRPMSG{n}" for n in range(10) if f"ttyRPMSG{n}" not in taken), None)
        if free is None:
            raise Refuse("")
        return self._links / free

    def _die(self) -> NoReturn:
        os._exit(137)


def _xen_config(settings: dict[str, Any]) -> str:
    """What the real daemon writes for ``xl create``."""
    lines = [f'name = "{settings["name"]}"', f'kernel = "{settings["ped_cfg"]}"', f"memory = {settings['memory']}"]
    lines.append(f"vcpus = {settings['vcpu_num']}")
    for key, name in (("max_vcpu_num", "maxvcpus"), ("max_memory", "maxmem")):
        if settings[key] > 0:
            lines.append(f"{name} = {settings[key]}")
    for key, name in (("cpu_weight", "cpu_weight"), ("cpu_capacity", "cap")):
        if settings[key] >= 0:
            lines.append(f"{name} = {settings[key]}")
    if settings["cpu_str"]:
        lines.append(f'cpus = "{settings["cpu_str"]}"')
    return "\n".join(lines) + "\n"
