"""The parent of one container's process: starts it, waits for it, and leaves nothing of it behind.

Run as a program of its own (`python -I -S shim.py CONFIG`), with the standard library alone, by the process kubelet.
What a PID namespace gives a real container this does by other means: it is the subreaper of all that the command
starts, so when the command ends, or is to end at once, or the kubelet itself dies, every descendant is killed, also one
that made itself a session of its own.

CONFIG is a JSON file: `argv` (whose first word is the program's path), `env`, `cwd`, `log` (file to append to) and
`parent` (the kubelet's process id). Standard output tells the kubelet, line by line: `started PID`, or `failed TEXT`
when the command could not be executed; then `exited CODE`, 128 + n after signal n. SIGTERM goes on to the command
alone; SIGQUIT kills everything at once.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # include/uapi/linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(path: str) -> int:
    """Run the container that the file describes, and return when nothing of it is left."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    wanted = {signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)
    if os.getppid() != config["parent"]:
        return 1  # the kubelet died before it could be watched
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become(config, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problem = pipe.read().decode(errors="replace")
    if problem:
        os.waitpid(child, 0)
        _say(f"failed {problem}")
        return 0
    _say(f"started {child}")
    code = _wait(child, wanted)
    _kill_descendants()
    _say(f"exited {code}")
    return 0


def _become(config: dict[str, Any], writer: int) -> NoReturn:
    """In the child: take the container's place; whatever goes wrong is written to the pipe, which exec closes."""
    try:
        os.setsid()
        _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        log = os.open(config["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, writer)
        os.closerange(writer + 1, 256)
        os.chdir(config["cwd"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores these; a fresh program must not inherit that
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execve(config["argv"][0], config["argv"], config["env"])
    except OSError as error:
        os.write(writer, f'exec: "{config["argv"][0]}": {error.strerror}'.encode())
    finally:
        os._exit(127)


def _wait(child: int, wanted: set[signal.Signals]) -> int:
    """The exit code of the command; on the way, pass signals on and bury orphans."""
    while True:
        received = signal.sigwait(wanted)
        if received == signal.SIGTERM:
            os.kill(child, signal.SIGTERM)
        elif received == signal.SIGQUIT:
            _kill_descendants(child)
            return 128 + signal.SIGKILL
        else:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == child:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                if pid == 0:
                    break


def _kill_descendants(child: int = 0) -> None:
    """Kill all that descends from here. Orphans come to us, the subreaper, so this ends when there is no child left."""
    if child:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    mine, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    stat = file.read()
            except OSError:
                continue
            # The command's name, in parentheses, may hold anything; the parent follows it by two fields.
            if int(stat.rpartition(b")")[2].split()[1]) == mine:
                found.append(int(name))
    return found


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more when the kubelet is gone
        os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
