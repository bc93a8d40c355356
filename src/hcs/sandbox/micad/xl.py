"""``python -m hcs.sandbox.micad.xl``: an emulated ``xl``, for what the daemon has no word for.

``list`` shows the domains of the emulated hypervisor with the CPU time that their processes have used, ``pause`` and
``unpause`` stop and continue those processes, ``info`` tells the size of the machine. The directory of the emulated
hypervisor comes in ``EMULATED_XEN``.
"""

import os
import signal
import sys
from pathlib import Path

import msgspec

from hcs.sandbox.micad.domains import Domain


def main(arguments: list[str]) -> int:
    """Carry out one command; 1 where it cannot be."""
    directory = Path(os.environ.get("EMULATED_XEN", "."))
    try:
        domains = msgspec.json.decode((directory / "domains.json").read_bytes(), type=list[Domain])
    except FileNotFoundError:
        domains = []
    word, *names = arguments or [""]
    if word == "info":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        sys.stdout.write(f"nr_cpus                : {os.cpu_count()}\n")
        sys.stdout.write(f"total_memory           : {pages >> 20}\n")
        return 0
    if word == "list":
        sys.stdout.write(f"{'Name':<40}{'ID':>5}{'Mem':>6}{'VCPUs':>6}{'State':>10}{'Time(s)':>9}\n")
        for number, one in enumerate(domains, 1):
            state = "--p---" if one.paused else "r-----"
            used = seconds_of(one.pid)
            sys.stdout.write(f"{one.name:<40} {number:>4} {one.memory:>5} {one.vcpus:>5} {state:>9} {used:>8.1f}\n")
        return 0
    found = next((one for one in domains if [one.name] == names), None)
    if word in ("pause", "unpause") and found is not None:
        os.killpg(found.pid, signal.SIGSTOP if word == "pause" else signal.SIGCONT)
        with open(directory / "record.log", "a") as file:
            file.write(f"xl xl {word} {found.name}\n")
        return 0
    sys.stderr.write(f"emulated xl: cannot {' '.join(arguments)}\n")
    return 1


def seconds_of(pid: int) -> float:
    """CPU seconds of a process and of the children it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
