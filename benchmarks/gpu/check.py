"""The interceptor on a real NVIDIA card: programs under a quota, the ledger against the driver, two tenants, step time.

Each check is a program of its own (:mod:`benchmarks.gpu.programs`), run under ``hcs quota run`` or ``… verify``. The
first needs the driver alone; of PyTorch, JAX and CuPy those are used that the chosen Python has, and what is left
out is said with the reason. Prints one JSON line a check and a table, and writes the table to ``docs/measured``.

What must hold: "out of memory" comes within one granule (2 MiB) of the quota, and never while the program holds less
than 98 % of the quota less the measured context; what the card says it has is the quota; the ledger is within 1 % of
the driver's figure; two tenants side by side get each its own; training steps take at most 1 % longer (median of 5
paired runs).

Exit code 0 where all that ran passed, 1 where one failed, 2 for words that cannot be read, 3 without a card.

    make gpu-check
    python -m benchmarks.gpu.check --python ~/torch/bin/python --card GPU-… --quota 8Gi
    python -m benchmarks.gpu.check --emulated          # the logic alone, without a card
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.programs import INSTALL, NAMES, PROGRAMS, SIGHT, TRAINING, Program
from benchmarks.gpu.report import Row, Setting, page, table

from hcs.model.quantities import QuantityError, parse_amount
from hcs.vendors import nvml

GRANULE = 2 << 20
PAIRED_RUNS = 5
SECONDS = 600
LARGEST_QUOTA = 8 << 30
EMULATED = "GPU-00000000-0000-4000-8000-0000000000c5"
PAGE = Path("docs/measured/gpu-check.md")


_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Exit)\b")


class CheckError(RuntimeError):
    """A check that could not be carried out; the message says what was seen."""


class Bench:
    """How programs are run: the card, the quota, the interpreter with the frameworks."""

    def __init__(self, uuid: str, quota: int, python: str, *, emulated: bool) -> None:
        self.uuid, self.quota, self.python, self.emulated = uuid, quota, python, emulated

    def held_to(self, quota: int, text: str, *, verified: bool = False) -> list[str]:
        """The command that runs a Python program under a quota."""
        words = [sys.executable, "-m", "hcs.cli.main", "quota", "verify" if verified else "run"]
        words += ["--card", f"{self.uuid}={quota}", *(["--emulated"] if self.emulated else [])]
        return [*words, *(["--json"] if verified else []), "--", self.python, "-c", text]

    def environment(self) -> dict[str, str]:
        """The card that is checked, and no other; nothing of an outer quota."""
        chosen = {} if self.emulated else {"CUDA_VISIBLE_DEVICES": self.uuid}
        return {**os.environ, **chosen}

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Run a command."""
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment()
        )

    def answers(self, command: Sequence[str]) -> list[dict[str, Any]]:
        """The JSON lines that a command prints.

        Raises:
            CheckError: it failed, or took too long.
        """
        return self.finish(self.start(command))

    def finish(self, process: subprocess.Popen[str]) -> list[dict[str, Any]]:
        """What a running command prints in the end.

        Raises:
            CheckError: it failed, or took too long.
        """
        try:
            out, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise CheckError(f"not done within {SECONDS} s") from error
        found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        if process.returncode != 0 and not found:
            raise CheckError(f"exit code {process.returncode}: {_last_words(errors)}")
        return found

    # ---- the checks --------------------------------------------------------------------------------------------------

    def program(self, program: Program) -> tuple[bool, str, dict[str, Any]]:
        """A program alone under the quota: what it was told, what it got, and the ledger beside the driver."""
        answers = self.answers(self.held_to(self.quota, program.text, verified=True))
        told = next((answer for answer in answers if "held" in answer), None)
        verdict = next((answer for answer in answers if "cards" in answer), None)
        if told is None or verdict is None:
            raise CheckError("the program printed no result" if told is None else "the books were not compared")
        card = verdict["cards"][0]
        most, held = int(card["mostBytes"]), told["held"]
        context = most - held if held is not None else None
        figures = {"held": held, "ledger": most, "driver": card["driverBytes"], "context": context}
        wrong = []
        if told["total"] not in (None, self.quota):
            wrong.append(f"the card said it has {told['total']} bytes")
        if most > self.quota + GRANULE:
            wrong.append(f"{most - self.quota} bytes more than the quota")
        if program.fills and most < self.quota - GRANULE:
            wrong.append(f"refused with {self.quota - most} bytes left")
        if program.fills and held is not None and context is not None and held < 0.98 * (self.quota - context):
            wrong.append("refused below 98 % of the quota less the context")
        if told.get("limit") and told["limit"] > self.quota:
            wrong.append(f"it sized itself for {told['limit']} bytes")
        if not verdict["agree"]:
            wrong.append(f"ledger {card['ledgerBytes']}, driver {card['driverBytes']}")
        return not wrong, "; ".join(wrong), figures

    def two_tenants(self, program: Program) -> tuple[bool, str, dict[str, Any]]:
        """Two at once, each filled to its own quota."""
        quotas = (self.quota // 2, self.quota * 3 // 4)
        running = [self.start(self.held_to(quota, program.text)) for quota in quotas]
        try:
            held = [self.finish(process)[-1]["held"] for process in running]
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                process.communicate()
        right = all(0.5 * quota <= got <= quota for got, quota in zip(held, quotas, strict=True))
        return right, " and ".join(f"{got >> 20} of {q >> 20} MiB" for got, q in zip(held, quotas, strict=True)), {}

    def step_time(self) -> tuple[bool, str, dict[str, Any]]:
        """Training steps with and without, in pairs, the order changing."""
        ratios = []
        for turn in range(PAIRED_RUNS):
            commands = [[self.python, "-c", TRAINING], self.held_to(self.quota, TRAINING)]
            seconds = [0.0, 0.0]
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                seconds[which] = float(self.answers(commands[which])[-1]["step_seconds"])
            ratios.append(seconds[1] / seconds[0])
        median = statistics.median(ratios)
        return median <= 1.01, f"median of {PAIRED_RUNS} pairs: {median:.4f} of native", {"ratios": ratios}


def sight(python: str, framework: str) -> tuple[str, str]:
    """A framework's version in an interpreter, and why it cannot be used; one of them empty."""
    name = NAMES[framework]
    done = subprocess.run(
        [python, "-c", SIGHT[framework]], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode == 0 and lines:
        version, sees = json.loads(lines[-1])
        return (f"{name} {version}", "") if sees else ("", f"{name} {version} sees no card: is it built for CUDA?")
    words = _last_words(done.stderr)
    if "ModuleNotFoundError" in words:
        return "", f"{name} is not installed in {python}; {INSTALL[framework]}, or name another with --python"
    return "", f"{name} cannot be used in {python}: {words}"


def _last_words(text: str) -> str:
    """What an error was: the exception's line, else what a command says of it, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _EXCEPTION.match(line)] or [
        line for line in lines if line.startswith("error: ")
    ]
    return (telling or lines or ["nothing was said"])[-1][:300]


def run_checks(bench: Bench, missing: Mapping[str, str]) -> list[Row]:
    """Every check that can be run; one row each."""
    checks: list[tuple[str, str, Callable[[], tuple[bool, str, dict[str, Any]]]]] = [
        (name, program.framework, lambda program=program: bench.program(program))  # type: ignore[misc]
        for name, program in PROGRAMS.items()
    ]
    filler = PROGRAMS["driver" if "torch" in missing else "pytorch-caching"]
    checks.append(("two-tenants", "", lambda: bench.two_tenants(filler)))
    checks.append(("step-time", "torch", bench.step_time))
    rows = []
    for name, framework, check in checks:
        if framework in missing:
            rows.append(Row(name, "left out", missing[framework]))
            continue
        try:
            passed, why, figures = check()
        except (CheckError, KeyError, TypeError, ValueError, OSError) as error:
            passed, why, figures = False, f"{type(error).__name__}: {error}", {}
        rows.append(Row(name, "passed" if passed else "FAILED", why, figures))
        print(json.dumps({"check": name, "passed": passed, "why": why, **figures}), flush=True)
    return rows


def choose(wanted: str | None, emulated: bool) -> tuple[str, str, int, str] | None:
    """UUID, name, bytes and driver of the card to check; None where there is none."""
    if emulated:
        return EMULATED, "emulated A100", 80 << 30, "emulated"
    uuids = [uuid for uuid, _ in nvml.list_cards() or ()]
    if wanted is not None:
        uuids = [uuid for uuid in uuids if uuid == wanted]
    described = nvml.describe(uuids[0]) if uuids else None
    return (uuids[0], *described) if described is not None else None


def main(words: Sequence[str]) -> int:
    """Run every check that can be run."""
    reader = argparse.ArgumentParser(prog="benchmarks.gpu.check", description="The interceptor on a real NVIDIA card.")
    reader.add_argument("--card", help="UUID of the card; the first where it is left out")
    reader.add_argument("--quota", help="like 8Gi; else 8Gi, or two fifths of a card that is too small for that")
    default = os.environ.get("HCS_GPU_PYTHON", sys.executable)
    reader.add_argument("--python", default=default, help="the interpreter with the frameworks (HCS_GPU_PYTHON)")
    reader.add_argument("--emulated", action="store_true", help="on an emulated card: shows that the checks run")
    reader.add_argument("--output", type=Path, help=f"where the page is written; {PAGE}, or nowhere when emulated")
    chosen = reader.parse_args(words)
    card = choose(chosen.card, chosen.emulated)
    if card is None:
        print(
            f"no NVIDIA card{' ' + chosen.card if chosen.card else ''} on this machine: nothing was checked; "
            "--emulated shows that the checks run",
            file=sys.stderr,
        )
        return 3
    uuid, name, total, driver = card
    try:
        most = min(LARGEST_QUOTA, total * 2 // 5) >> 21 << 21  # both tenants must fit
        quota = parse_amount(chosen.quota, what="the quota", example="8Gi") if chosen.quota else most
    except QuantityError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seen = {framework: sight(chosen.python, framework) for framework in SIGHT}
    missing = {framework: why for framework, (_, why) in seen.items() if why}
    if chosen.emulated:
        missing = dict.fromkeys(SIGHT, "it computes, which an emulated card cannot")
    bench = Bench(uuid, quota, chosen.python, emulated=chosen.emulated)
    rows = run_checks(bench, missing)
    setting = Setting(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        card=f"{name}, {total >> 20} MiB",
        driver=driver,
        command=shlex.join(["python", "-m", "benchmarks.gpu.check", *words]),
        frameworks=[version for version, _ in seen.values() if version],
        quota=quota,
        emulated=chosen.emulated,
    )
    output = chosen.output or (None if chosen.emulated else PAGE)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(page(setting, rows))
        print(f"written: {output}", file=sys.stderr)
    print(table(rows), end="")
    return int(any(row.verdict == "FAILED" for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
