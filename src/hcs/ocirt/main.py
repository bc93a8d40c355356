"""``hcs-rtos``: the command line of the OCI runtime, as containerd's runc shim calls it.

It starts often and lives briefly, so it imports little: no Typer, no rich, and nothing of what other commands need.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import hcs
from hcs.mica.client import MicaError
from hcs.mica.settings import client_of, host_of, load_config
from hcs.model.refusals import Refusal, RefusedError
from hcs.ocirt.journal import Journal
from hcs.ocirt.lifecycle import OCI_VERSION, Runtime
from hcs.rtos.annotations import KEYS, PREFIX
from hcs.rtos.resources import Resources, read_resources

ROOT: Final = "/run/hcs-rtos"
_NOT_FOR_GUESTS: Final = {
    "exec": "a guest runs one program, its firmware; there is nothing to execute another in",
    "checkpoint": "the state of a guest cannot be saved",
    "restore": "the state of a guest cannot be saved",
    "events": "a guest's figures are those of its hypervisor; see hcs rtos metrics",
    "run": "use create and start",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when all of it was done, 1 when it was refused or failed, 2 for a wrong command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    journal = Journal(options.log, json=options.log_format == "json", debug=options.debug)
    if options.command in _NOT_FOR_GUESTS:
        reason = _NOT_FOR_GUESTS[options.command]
        return _fail(journal, Refusal("NotForGuests", f"{options.command} is not possible: {reason}"))
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if options.command == "features":
        _print(features())
        return 0
    try:
        _run(options, journal)
    except RefusedError as error:
        return _fail(journal, error.refusals[0])
    except MicaError as error:
        return _fail(journal, error.refusal)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(journal, Refusal("SystemError", f"{options.command}: {where}{error.strerror or error}"))
    return 0


def _run(options: argparse.Namespace, journal: Journal) -> None:
    config = load_config()
    # Only those that plan need the host's facts, and asking the hypervisor for them takes time.
    asks = options.command in ("create", "start", "update", "pause", "resume")
    host = host_of(config if asks else msgspec.structs.replace(config, pcpus=1, total_memory_mb=1))
    root = Path(options.root) if options.root else Path(config.state_dir or ROOT)
    runtime = Runtime(root.absolute(), config, host, client_of(config), journal)
    match options.command:
        case "create":
            bundle = Path(options.bundle or os.getcwd()).absolute()
            runtime.create(options.id, bundle, options.pid_file, options.console_socket)
        case "start":
            runtime.start(options.id)
        case "kill":
            runtime.kill(options.id, _signal(options.signal), everyone=options.all)
        case "delete":
            runtime.delete(options.id, force=options.force)
        case "pause":
            runtime.pause(options.id)
        case "resume":
            runtime.resume(options.id)
        case "update":
            runtime.update(options.id, _change(options))
        case "state":
            _print(runtime.state(options.id))
        case "ps":
            pids = runtime.pids(options.id)
            if options.format == "json":
                _print(pids)
            else:
                sys.stdout.write("".join(f"{line}\n" for line in ("PID", *map(str, pids))))


def features() -> dict[str, Any]:
    """What the runtime can do, in the shape of OCI's ``features``."""
    return {
        "ociVersionMin": "1.0.0",
        "ociVersionMax": OCI_VERSION,
        "hooks": ["prestart", "createRuntime", "poststart", "poststop"],
        "mountOptions": [],
        "linux": {
            "namespaces": ["network"],
            "capabilities": [],
            "cgroup": {"v1": True, "v2": True, "systemd": False, "systemdUser": False},
            "seccomp": {"enabled": False},
            "apparmor": {"enabled": False},
            "selinux": {"enabled": False},
        },
        "annotations": {
            "ai.compute.hcs-rtos.version": hcs.__version__,
            "ai.compute.hcs-rtos.guest-annotations": ",".join(PREFIX + key for key in KEYS),
        },
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hcs-rtos",
        description="An OCI runtime whose containers are RTOS guests, started through micad.",
        epilog="Configuration: MICRUN_CONF_FILE, MICRUN_CONF_DIR, /etc/mica/micrun/conf.d or micrun.conf.",
    )
    parser.add_argument("--version", "-v", action="version", version=f"hcs-rtos {hcs.__version__}\nspec: {OCI_VERSION}")
    parser.add_argument("--root", default="", metavar="DIR", help=f"where state is kept; {ROOT} otherwise")
    parser.add_argument("--log", default="", metavar="FILE", help="log file; stderr otherwise")
    parser.add_argument("--log-format", default="text", choices=("text", "json"))
    parser.add_argument("--debug", action="store_true", help="log more")
    parser.add_argument("--systemd-cgroup", action="store_true", help="cgroupsPath has the form slice:prefix:name")
    parser.add_argument("--rootless", default="auto", metavar="WORD", help="ignored")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help)
        added.add_argument("id", metavar="ID", help="the container")
        return added

    create = command("create", "create a container; its guest waits for start")
    create.add_argument("--bundle", "-b", default="", metavar="DIR", help="the bundle; the working directory otherwise")
    create.add_argument("--pid-file", default="", metavar="FILE")
    create.add_argument("--console-socket", default="", metavar="SOCKET")
    create.add_argument("--no-pivot", action="store_true", help="ignored")
    create.add_argument("--no-new-keyring", action="store_true", help="ignored")
    create.add_argument("--preserve-fds", default="0", metavar="N", help="ignored")
    command("start", "start a created container's guest")
    command("state", "print a container's state")
    kill = command("kill", "stop the guest: TERM (default), KILL, INT, QUIT or HUP")
    kill.add_argument("signal", nargs="?", default="TERM", metavar="SIGNAL")
    kill.add_argument("--all", "-a", action="store_true")
    delete = command("delete", "forget a container and its guest")
    delete.add_argument("--force", "-f", action="store_true", help="also while it runs, and where micad is dead")
    ps = command("ps", "print the container's processes on this host")
    ps.add_argument("--format", "-f", default="table", choices=("table", "json"))
    command("pause", "hold the guest, by the hypervisor")
    command("resume", "let a paused guest go on")
    update = command("update", "change the guest's resources")
    update.add_argument("--resources", "-r", default="", metavar="FILE", help="OCI resources as JSON; - for stdin")
    for flag in ("--cpu-share", "--cpu-quota", "--cpu-period", "--memory", "--memory-reservation"):
        update.add_argument(flag, type=int, default=None, metavar="N")
    update.add_argument("--cpuset-cpus", default=None, metavar="LIST")
    commands.add_parser("features", help="print what this runtime can do", description="print what this runtime can do")
    for name, reason in _NOT_FOR_GUESTS.items():
        commands.add_parser(name, help=f"refused: {reason}", add_help=False, prefix_chars="\0").add_argument(
            "arguments", nargs="*"
        )
    return parser


def _change(options: argparse.Namespace) -> Resources:
    raw: dict[str, Any] = {}
    if options.resources:
        text = sys.stdin.buffer.read() if options.resources == "-" else Path(options.resources).read_bytes()
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RefusedError(Refusal("MalformedValue", f"the resources are not JSON: {error}")) from error
        if not isinstance(raw, dict):
            raise RefusedError(Refusal("MalformedValue", "the resources are not an object"))
    change = read_resources(raw)
    flags = {
        "shares": options.cpu_share,
        "quota": options.cpu_quota,
        "period": options.cpu_period,
        "cpus": options.cpuset_cpus,
        "limit": options.memory,
        "reservation": options.memory_reservation,
    }
    return msgspec.structs.replace(change, **{key: value for key, value in flags.items() if value is not None})


def _signal(text: str) -> int:
    word = text.upper().removeprefix("SIG")
    if word.isdecimal():
        return int(word)
    with contextlib.suppress(KeyError):
        return signal.Signals[f"SIG{word}"].value
    raise RefusedError(Refusal("UnknownSignal", f"there is no signal {text!r:.40}; give a name like TERM, or a number"))


def _print(data: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n")


def _fail(journal: Journal, refusal: Refusal) -> int:
    journal.note("error", refusal.message, quiet=True)
    sys.stderr.write(f"hcs-rtos: {refusal.message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
