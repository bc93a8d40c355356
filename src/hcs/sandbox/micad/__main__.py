"""``python -m hcs.sandbox.micad``: run the emulated daemon until it is told to end."""

import argparse
import signal
import sys
import threading
from pathlib import Path

from hcs.sandbox.micad.daemon import Daemon


def main() -> int:
    """Serve; 0 after SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m hcs.sandbox.micad", description="An emulated mica daemon.")
    parser.add_argument("--directory", type=Path, required=True, help="directory of sockets; wiped at each start")
    parser.add_argument("--state", type=Path, required=True, help="where the emulated hypervisor keeps its files")
    parser.add_argument("--links", type=Path, help="where links to consoles go; in the state directory otherwise")
    parser.add_argument("--console-delay", type=float, default=0.2, help="seconds from start to the console's link")
    parser.add_argument("--start-seconds", type=float, default=0.0, help="how long a start takes")
    parser.add_argument("--boot-seconds", type=float, default=0.15, help="seconds from the console to the first word")
    parser.add_argument("--named-links", action="store_true", help="console links carry the guest's name")
    options = parser.parse_args()
    daemon = Daemon(
        options.directory,
        state=options.state,
        links=options.links or options.state / "dev",
        console_delay=options.console_delay,
        start_seconds=options.start_seconds,
        boot_seconds=options.boot_seconds,
        named_links=options.named_links,
    )
    ending = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: ending.set())
    sys.stdout.write("emulated micad ready\n")
    sys.stdout.flush()
    daemon.serve(ending)
    daemon.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
