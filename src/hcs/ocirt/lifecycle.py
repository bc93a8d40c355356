"""The life of a container: each command of the OCI runtime as one function of the same object.

A step that talks to micad is recorded when it has succeeded and told as an error when it has not; in between, the
record says what may be true, so that ``delete`` can always put things in order. Every command on a container holds its
lock; creations, and all commands on guests that share a CPU pool, hold the root's.
"""

import contextlib
import datetime
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.mica.client import Mica, MicaError
from hcs.mica.messages import CreateMessage, check_name
from hcs.mica.records import GuestRecord, Records, process_start, write_atomically
from hcs.mica.settings import Xl, XlError
from hcs.model.refusals import Refusal, RefusedError
from hcs.ocirt import cgroups
from hcs.ocirt.bundles import Bundle, firmware_of, kernel_of, read_bundle, verified_copy
from hcs.ocirt.journal import Journal
from hcs.ocirt.relay import Orders, open_terminal, spawn
from hcs.rtos.annotations import Annotations, is_infra, read_annotations, sandbox_of
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import CpuSet, parse_cpuset, union
from hcs.rtos.hosts import XEN, Host
from hcs.rtos.planning import ignored, make_plan
from hcs.rtos.resources import Resources
from hcs.rtos.sandboxes import is_pooled, pool_changes
from hcs.rtos.updates import Command, Record, carry_out, commands, plan_update

STOPPING: Final = frozenset({signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
OCI_VERSION: Final = "1.0.2"


class Runtime:
    """The runtime on one root directory."""

    def __init__(self, root: Path, config: Config, host: Host, mica: Mica, journal: Journal) -> None:
        """Prepare.

        Args:
            root: where records are kept.
            config: the node's configuration.
            host: what is known of the machine.
            mica: the daemon.
            journal: the log.
        """
        self._records, self._config, self._host = Records(root), config, host
        self._mica, self._journal = mica, journal

    def create(self, container: str, bundle_path: Path, pid_file: str, console_socket: str) -> None:
        """Create a container: plan its guest, verify its files, start its relay, tell micad.

        Raises:
            RefusedError: it cannot be created as asked; nothing was sent to micad.
            MicaError: micad did not take it.
            OSError: a local step failed.
        """
        check_name(container)
        self._records.directory(container)
        bundle = read_bundle(bundle_path)
        annotations = read_annotations(bundle.annotations)
        if bundle.terminal and not console_socket:
            raise RefusedError(Refusal("NoConsoleSocket", "process.terminal is set; give --console-socket"))
        if console_socket and not bundle.terminal:
            raise RefusedError(Refusal("NoTerminal", "--console-socket is given; set process.terminal"))
        with self._records.locked():
            self._check_room()
            directory = self._records.make(container)
            try:
                with self._records.locked(container):
                    self._create(container, directory, bundle, annotations, pid_file, console_socket)
            except BaseException:
                self._records.drop(container)
                raise

    def _create(
        self,
        container: str,
        directory: Path,
        bundle: Bundle,
        annotations: Annotations,
        pid_file: str,
        console_socket: str,
    ) -> None:
        infra = is_infra(bundle.annotations)
        record = GuestRecord(
            id=container,
            bundle=str(bundle.path),
            rootfs=str(bundle.rootfs),
            status="creating",
            created=datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z"),
            annotations=bundle.annotations,
            sandbox=sandbox_of(bundle.annotations, container),
            infra=infra,
            pooled=not infra and is_pooled(self._config, annotations),
            resources=bundle.resources,
        )
        message: CreateMessage | None = None
        if not infra:
            record, message = self._prepare(record, directory, bundle, annotations)
        self._records.write(record)
        pid = self._spawn(record, directory, bundle, annotations, console_socket)
        try:
            for problem in cgroups.enter(bundle.cgroups_path, pid):
                self._journal.note("warning", f"control group: {problem}", quiet=True)
            record = msgspec.structs.replace(record, pid=pid, pid_start=process_start(pid))
            self._records.write(record)
            run_hooks(bundle, ("prestart", "createRuntime"), state_of(record, "creating"))
            if message is not None:
                self._tell_micad(message)
            self._records.write(msgspec.structs.replace(record, status="created"))
            if pid_file:
                write_atomically(Path(pid_file), str(pid).encode())
        except BaseException:
            _end(pid, directory)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            cgroups.leave(bundle.cgroups_path)
            raise

    def _prepare(
        self, record: GuestRecord, directory: Path, bundle: Bundle, annotations: Annotations
    ) -> tuple[GuestRecord, CreateMessage]:
        """Everything that can be refused before anything is sent."""
        others = self._pool(record)
        made = make_plan(bundle.resources, annotations, self._config, self._host, pool=others)
        for name in ignored(bundle.resources, bundle.annotations):
            self._journal.note("info", f"{name} has no meaning for a guest and is ignored", quiet=True)
        for warning in made.warnings:
            self._journal.note("warning", f"guest {record.id}: {warning}", quiet=True)
        firmware = firmware_of(bundle, annotations, self._config)
        if annotations.firmware_hash:
            firmware = verified_copy(firmware, annotations.firmware_hash, directory / "firmware.elf")
        kernel = kernel_of(bundle, annotations, needed=self._host.pedestal == XEN)
        pinned = str(others | parse_cpuset(made.cpuset)) if record.pooled else made.cpuset
        message = CreateMessage(
            name=record.id,
            path=str(firmware),
            ped=self._host.pedestal,
            ped_cfg=str(kernel or ""),
            debug=bool(annotations.debug) or self._config.debug,
            cpu_str=pinned,
            vcpu_num=made.vcpus,
            max_vcpu_num=made.max_vcpus,
            cpu_weight=-1 if made.cpu_weight is None else made.cpu_weight,
            cpu_capacity=made.cpu_capacity,
            memory=made.memory_mb,
            max_memory=made.threshold_mb,
        )
        self._mica.check(message)
        return msgspec.structs.replace(record, plan=made, given=Record.of(made, pinned=pinned)), message

    def _spawn(
        self, record: GuestRecord, directory: Path, bundle: Bundle, annotations: Annotations, console_socket: str
    ) -> int:
        close = annotations.close_after
        orders = Orders(
            directory=str(directory),
            guest="" if record.infra else record.id,
            close_after=None if close is None else close / 1000,
            console_timeout=self._config.console_timeout,
            daemon_grace=self._config.daemon_grace,
        )

        def prepare() -> None:
            if bundle.own_network and bundle.hooks and not annotations.disable_new_netns:
                cgroups.network_of_its_own()

        if not bundle.terminal:
            return spawn(orders, self._mica, self._journal, prepare=prepare)
        master, slave = open_terminal(bundle.size)
        try:
            pid = spawn(orders, self._mica, self._journal, terminal=slave, prepare=prepare)
            try:
                _send_terminal(console_socket, master)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
        finally:
            os.close(master)
            os.close(slave)
        return pid

    def _tell_micad(self, message: CreateMessage) -> None:
        try:
            self._mica.create(message)
        except MicaError as error:
            if not error.reached and error.refusal.reason in ("NoAnswer", "NoMarker", "ShortWrite"):
                with contextlib.suppress(MicaError):  # it may have been carried out: nothing may stay behind
                    self._mica.remove(message.name)
            raise

    def start(self, container: str) -> None:
        """Start a created container's guest.

        Raises:
            RefusedError: it is not created.
            MicaError: micad did not start it, or did not take what was updated meanwhile.
        """
        with self._locked(container) as record:
            if record.now != "created":
                raise _wrong_state(record, "start", "created")
            if not record.infra:
                self._mica.start(record.id)
                try:
                    record = self._catch_up(record)
                    self._repin(record)
                except (MicaError, RefusedError):
                    with contextlib.suppress(MicaError):
                        self._mica.stop(record.id)
                    raise
            record = msgspec.structs.replace(record, status="running")
            self._records.write(record)
            try:
                handle = os.open(self._records.directory(container) / "start", os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if not record.infra:
                    self._mica.stop(record.id)
                raise RefusedError(
                    Refusal("RelayGone", f"container {container}: its relay died before the start")
                ) from error
            os.write(handle, b"1")
            os.close(handle)
            with contextlib.suppress(RefusedError, OSError):
                run_hooks(read_bundle(Path(record.bundle)), ("poststart",), state_of(record))

    def _catch_up(self, record: GuestRecord) -> GuestRecord:
        """Send what was updated between create and start."""
        if record.given is None or record.plan is None:
            return record
        pinned = str(self._pool(record) | parse_cpuset(record.plan.cpuset)) if record.pooled else None
        return self._send(record, commands(record.given, record.plan, self._host, pinned=pinned))

    def kill(self, container: str, signum: int, *, everyone: bool = False) -> None:
        """Stop the guest for a signal that ends processes; an RTOS knows no others.

        Raises:
            RefusedError: the container does not run, or the signal cannot be delivered.
            MicaError: micad did not stop it.
        """
        with self._locked(container) as record:
            if record.now == "stopped":
                if everyone:
                    return
                raise RefusedError(Refusal("NotRunning", f"container not running: {container}"))
            if signum == 0:
                return
            if signum not in STOPPING:
                raise RefusedError(
                    Refusal(
                        "SignalNotDeliverable",
                        f"signal {signum} has no meaning for a guest; TERM, KILL, INT, QUIT and HUP stop it",
                    )
                )
            directory = self._records.directory(container)
            running = record.status in ("running", "paused") and not record.infra
            write_atomically(directory / "exit", str(128 + signum).encode())
            if running:
                try:
                    self._mica.stop(record.id)
                except BaseException:
                    (directory / "exit").unlink(missing_ok=True)
                    raise
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGUSR1 if running else signal.SIGTERM)

    def delete(self, container: str, *, force: bool = False) -> None:
        """Forget a container, and make micad forget its guest.

        Args:
            container: its id.
            force: end it first where it runs, and go on where micad cannot be reached, saying so in the log.

        Raises:
            RefusedError: it runs, or there is none (not with ``force``).
            MicaError: micad did not remove the guest (not with ``force``).
        """
        try:
            with self._locked(container) as record:
                if record.now not in ("stopped", "created", "creating") and not force:
                    raise _wrong_state(record, "delete", "stopped")
                if not record.infra:
                    self._remove(record, force=force)
                _end(record.pid if record.alive else 0, self._records.directory(container))
                with contextlib.suppress(RefusedError, OSError):
                    bundle = read_bundle(Path(record.bundle))
                    cgroups.leave(bundle.cgroups_path)
                    run_hooks(bundle, ("poststop",), state_of(record, "stopped"))
                self._records.drop(container)
                self._repin_rest(record)
        except RefusedError as error:
            reason = error.refusals[0].reason
            if not force or reason not in ("NoContainer", "DamagedRecord"):
                raise
            if reason == "DamagedRecord":
                self._journal.note("error", f"{error}; the guest, if there is one, is left to micad")
                self._records.drop(container)

    def _remove(self, record: GuestRecord, *, force: bool) -> None:
        try:
            self._mica.remove(record.id)
        except MicaError as error:
            if error.refusal.reason == "NoSocket" and self._mica.is_up():
                return  # micad does not know it (any more): what was to be done is done
            if not force:
                raise
            self._journal.note("error", f"guest {record.id} may still run, micad could not remove it: {error}")

    def update(self, container: str, change: Resources) -> None:
        """Change a guest's resources.

        Raises:
            RefusedError: the merged resources cannot be given; nothing was sent.
            MicaError: a step failed; what succeeded before it is recorded.
        """
        with self._locked(container) as record:
            if record.infra:
                return
            if record.now not in ("created", "running", "paused") or record.plan is None or record.given is None:
                raise _wrong_state(record, "update", "created, running or paused")
            annotations = read_annotations(record.annotations)
            others = self._pool(record)
            found = plan_update(
                record.given,
                record.resources,
                change,
                annotations,
                self._config,
                self._host,
                pool=others,
                max_vcpus=record.plan.max_vcpus,
            )
            if found.static:
                self._journal.note("info", f"guest {container}: static_resource is set, the update changes nothing")
                return
            steps = found.commands
            if record.pooled:
                pinned = str(others | parse_cpuset(found.plan.cpuset))
                steps = commands(record.given, found.plan, self._host, pinned=pinned)
            if record.status != "created":  # before its start a guest cannot be changed; the start catches up
                record = self._send(record, steps)
            record = msgspec.structs.replace(record, resources=found.resources, plan=found.plan)
            self._records.write(record)
            self._repin(record)

    def _send(self, record: GuestRecord, steps: tuple[Command, ...]) -> GuestRecord:
        """Send commands one by one, keeping what each success made true."""
        if not steps or record.given is None:
            return record
        failure: list[MicaError] = []

        def send(step: Command) -> str | None:
            try:
                self._mica.set(record.id, step.key, step.value)
            except MicaError as error:
                failure.append(error)
                return str(error)
            return None

        given, failed = carry_out(
            record.given,
            steps,
            send,
            lambda kept: self._records.write(msgspec.structs.replace(record, given=kept)),
        )
        if failed:
            raise failure[0]
        return msgspec.structs.replace(record, given=given)

    def pause(self, container: str) -> None:
        """Hold a running guest, by the hypervisor: micad has no word for it.

        Raises:
            RefusedError: it does not run, or there is no hypervisor to ask.
        """
        self._hold(container, "running", "paused")

    def resume(self, container: str) -> None:
        """Let a paused guest go on.

        Raises:
            RefusedError: it is not paused, or there is no hypervisor to ask.
        """
        self._hold(container, "paused", "running")

    def _hold(self, container: str, before: Any, after: Any) -> None:
        with self._locked(container) as record:
            if record.now != before or record.infra:
                raise _wrong_state(record, "pause" if after == "paused" else "resume", before)
            if self._host.pedestal != XEN:
                raise RefusedError(
                    Refusal("PauseUnsupported", f"pedestal {self._host.pedestal} cannot hold a guest; stop it instead")
                )
            xl = Xl(self._config.xl)
            try:
                (xl.pause if after == "paused" else xl.unpause)(record.id)
            except XlError as error:
                raise RefusedError(
                    Refusal("PauseUnsupported", f"micad cannot hold a guest, and the hypervisor's tool failed: {error}")
                ) from error
            self._records.write(msgspec.structs.replace(record, status=after))

    def state(self, container: str) -> dict[str, Any]:
        """OCI's state of a container.

        Raises:
            RefusedError: there is none.
        """
        return state_of(self._records.read(container))

    def pids(self, container: str) -> list[int]:
        """The processes of a container on this host: its relay.

        Raises:
            RefusedError: there is none.
        """
        record = self._records.read(container)
        return [record.pid] if record.alive else []

    def _check_room(self) -> None:
        most = self._config.max_client_number
        guests = [one.id for one in self._records.all() if not one.infra and one.now != "stopped"]
        if most and len(guests) >= most:
            raise RefusedError(
                Refusal("TooManyGuests", f"{len(guests)} guests are here, max_client_number is {most}; end one first")
            )

    def _mates(self, record: GuestRecord) -> list[GuestRecord]:
        """The other guests of a container's sandbox that share its pool."""
        if not record.pooled:
            return []
        return [
            one
            for one in self._records.all()
            if one.id != record.id and one.sandbox == record.sandbox and one.pooled and one.now != "stopped"
        ]

    def _pool(self, record: GuestRecord) -> CpuSet:
        """The CPU sets of the others, united."""
        return union(parse_cpuset(mate.plan.cpuset) for mate in self._mates(record) if mate.plan is not None)

    def _repin(self, record: GuestRecord) -> None:
        """Pin the others to the pool as it is with this guest."""
        if record.pooled and record.plan is not None:
            self._pin(self._mates(record), self._pool(record) | parse_cpuset(record.plan.cpuset))

    def _repin_rest(self, record: GuestRecord) -> None:
        """Pin the others to the pool as it is without this guest; that it failed is told, for the deletion is done."""
        if not record.pooled:
            return
        try:
            self._pin(self._mates(record), self._pool(record))
        except (MicaError, RefusedError) as error:
            self._journal.note("error", f"the pool of sandbox {record.sandbox} was not made smaller: {error}")

    def _pin(self, mates: Sequence[GuestRecord], pool: CpuSet) -> None:
        running = {mate.id: mate for mate in mates if mate.status in ("running", "paused") and mate.given is not None}
        pinned = {name: mate.given.cpuset for name, mate in running.items() if mate.given is not None}
        for name, text in pool_changes(pinned, pool):
            mate = running[name]
            assert mate.given is not None
            self._mica.set(name, "cpu", text)
            given = msgspec.structs.replace(mate.given, cpuset=text)
            self._records.write(msgspec.structs.replace(mate, given=given))

    @contextlib.contextmanager
    def _locked(self, container: str) -> Iterator[GuestRecord]:
        pooled = self._records.read(container).pooled
        with self._records.locked() if pooled else contextlib.nullcontext(), self._records.locked(container):
            yield self._records.read(container)


def state_of(record: GuestRecord, status: str = "") -> dict[str, Any]:
    """OCI's state, with the two members that runc adds."""
    now = status or record.now
    return {
        "ociVersion": OCI_VERSION,
        "id": record.id,
        "pid": record.pid if now != "stopped" else 0,
        "status": now,
        "bundle": record.bundle,
        "rootfs": record.rootfs,
        "created": record.created,
        "annotations": record.annotations,
    }


def run_hooks(bundle: Bundle, names: tuple[str, ...], state: dict[str, Any]) -> None:
    """Run the bundle's hooks that belong outside the container, each with the state on stdin.

    Raises:
        RefusedError: ``HookFailed``.
    """
    hooks = [hook for name in names for hook in bundle.hooks.get(name, ())]
    if hooks:
        import subprocess  # here, because it costs every command time, and few bundles have hooks
    for hook in hooks:
        path = str(hook.get("path", ""))
        environment = dict(item.split("=", 1) for item in hook.get("env") or () if "=" in item)
        try:
            done = subprocess.run(
                hook.get("args") or [path],
                executable=path,
                env=environment,
                input=msgspec.json.encode(state),
                capture_output=True,
                timeout=hook.get("timeout"),
                cwd=bundle.path,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RefusedError(Refusal("HookFailed", f"hook {path}: {error}")) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[:300]
            raise RefusedError(Refusal("HookFailed", f"hook {path} ended with {done.returncode}: {said}"))


def _end(pid: int, directory: Path) -> None:
    """End a relay and wait until it is gone."""
    if not pid:
        return
    with contextlib.suppress(OSError):
        if not (directory / "exit").exists():
            (directory / "exit").write_text("137")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _send_terminal(path: str, master: int) -> None:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"/dev/ptmx"], [master])


def _wrong_state(record: GuestRecord, verb: str, expected: str) -> RefusedError:
    return RefusedError(
        Refusal("WrongState", f"cannot {verb} container {record.id}: it is {record.now}, not {expected}")
    )
