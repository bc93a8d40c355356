"""``hcs cpn submit``: put a Job into the queue, once, whatever becomes of the connection.

Where nobody gave a key one is made up for this call, so that an answer that was lost on its way can be asked for again
without a second job.
"""

import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from hcs.cli.cpn_client import DEFAULT_SERVER, Api, Authority, Server, TokenFile, as_problem, opened, refused
from hcs.cli.cpn_words import progress
from hcs.cli.errors import FAILED, TIMEOUT, USAGE, CommandError
from hcs.cli.options import Json
from hcs.cli.output import say, tell, write_data
from hcs.cpn.wire import JobDetail, JobRow, Submitted
from hcs.model.refusals import RefusedError
from hcs.wide.amounts import AmountError
from hcs.wide.generation import generate, manifest
from hcs.wide.lifecycle import ENDED
from hcs.wide.manifests import read_manifest
from hcs.wide.submissions import ANNOTATIONS, KEY, Asked, annotation, read_key, read_submission

_PATIENCE_SECONDS: Final = 60.0
"""How long a controller may be away while somebody waits for a job."""
_AGAIN_SECONDS: Final = 0.5
_EXAMPLES: Final = """\b
Examples:
  hcs cpn submit train.yaml --wait
  hcs cpn submit - --key nightly-2030-01-31 < train.yaml
  hcs cpn submit --generate 40 --seed 0 --write queue/"""
EPILOGS: Final = {
    "submit": "\b\nAnnotations that are read:\n"
    + "\n".join(f"  {key:<16} {meaning}" for key, meaning in ANNOTATIONS.items())
    + f"\n\n{_EXAMPLES}"
}


def submit(
    files: Annotated[list[str] | None, typer.Argument(help="Job manifests; - is stdin.", metavar="FILE...")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key and manifest never make a second job.", metavar="KEY")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; 0 only if all succeeded.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds to wait at most; then the code is 124.", min=0.1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked; submit nothing.")] = False,
    generated: Annotated[
        int, typer.Option("--generate", help="Make up so many jobs instead.", min=0, max=100_000, metavar="N")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="What they are made up from.", min=0)] = 0,
    image: Annotated[
        str, typer.Option("--image", help="The image that made-up jobs run.", metavar="IMAGE")
    ] = "train:1",
    write: Annotated[
        Path | None, typer.Option("--write", help="Write them into this folder; submit nothing.", metavar="FOLDER")
    ] = None,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """Put Jobs into the queue, once.

    A Job is an ordinary batch/v1 manifest. What it says about itself in annotations is what its time and memory are
    predicted from; one that says nothing is taken too, and run alone first.
    """
    if bool(files) == bool(generated):
        raise CommandError(
            "nothing to submit" if not files else "files and --generate contradict each other",
            "give files, or --generate N",
            "hcs cpn submit train.yaml",
            code=USAGE,
        )
    if key is not None and files and len(files) > 1:
        raise CommandError("one key, several jobs", "a key stands for one job", "one --key for each file", code=USAGE)
    if key is not None:
        _check_key(key)
    if write is not None and not generated:
        raise CommandError("nothing to write", "--write goes with --generate", "--generate 40", code=USAGE)
    raws = [_read(file) for file in files or ()] or made_up(generated, seed, image)
    if write is not None:
        _write(write, raws)
        return
    if dry_run:
        _dry_run(files or [f"generated-{number}" for number in range(len(raws))], raws, json)
        return
    if len(files or ()) > 1:
        _check_all(files or [], raws)
    with opened(server, token_file, authority) as api:
        done = _send(api, raws, key, f"generated-{seed}" if generated and key is None else "", json)
        if wait:
            _wait(api, [answer.job for answer in done], timeout, json)


def _check_key(key: str) -> None:
    """A key goes into a header.

    Raises:
        CommandError: this one cannot.
    """
    try:
        read_key(key)
    except AmountError as error:
        why = str(error)
    else:
        if key.isascii():
            return
        why = f"it travels as a header of the request, which holds ASCII; as annotation {KEY} it may have any letters"
    hint = f"--key nightly-2030-01-31, or annotation {KEY} in the manifest"
    raise CommandError(f"{key[:60]!r} cannot be a key", why, hint, code=USAGE)


def _send(api: Api, raws: Sequence[bytes], key: str | None, series: str, json: bool) -> list[Submitted]:
    done = []
    run = uuid.uuid4().hex
    for number, raw in enumerate(raws):
        headers = {}
        if key is not None:
            headers["idempotency-key"] = key if len(raws) == 1 else f"{key}-{number}"
        elif not _has_key(raw):
            headers["idempotency-key"] = f"{series or 'call'}-{run}-{number}"
        answer = api.ask(Submitted, "POST", "/jobs", content=raw, headers=headers)
        done.append(answer)
        if json:
            write_data(answer, "line")
            continue
        known = "" if answer.created else ", known by its key"
        say(f"job/{answer.job.id} {answer.job.name}: {answer.job.state}{known}")
        for caution in answer.cautions if len(raws) == 1 else ():
            tell(f"  note: {caution.message}")
    return done


def _has_key(raw: bytes) -> bool:
    try:
        return annotation(read_manifest(raw), KEY) not in (None, "")
    except RefusedError:
        return False  # the controller says what is wrong


def _wait(api: Api, jobs: Sequence[JobRow], timeout: float | None, json: bool) -> None:
    """Follow jobs to their ends.

    Raises:
        CommandError: one did not succeed, or it took too long.
    """
    left = {job.id for job in jobs}
    ended: dict[str, JobRow] = {}
    told: dict[str, str] = {}
    over = threading.Event()
    trouble: list[CommandError] = []
    heard = [time.monotonic()]

    def see(job: JobRow) -> None:
        if job.id not in left:
            return
        words = f"{job.state} {progress(job)}".removesuffix(" -")
        if told.get(job.id) != words and (job.state != "Queued" or job.id in told):
            told[job.id] = words
            tell(f"job/{job.id} {job.name}: {words}" + (f" ({job.message})" if job.message else ""))
        if job.state in ENDED:
            ended[job.id] = job
            left.discard(job.id)

    def listen() -> None:
        for kind, content in api.events(jobs[0].id if len(jobs) == 1 else ""):
            heard[0] = time.monotonic()
            if kind in ("hello", "lost"):  # what happened before, or was missed
                for id in sorted(left):
                    see(api.ask(JobDetail, "GET", f"/jobs/{id}").job)
            elif kind == "job":
                see(msgspec.convert(content, JobRow))
            if not left:
                return
        raise api.unreachable(ConnectionError("it closed the line"))

    def follow() -> None:
        while left and not over.is_set():
            try:
                listen()
            except (CommandError, RuntimeError) as error:  # the latter when the client was closed meanwhile
                if over.is_set():
                    return
                if isinstance(error, RuntimeError):
                    raise
                if time.monotonic() - heard[0] > _PATIENCE_SECONDS:
                    trouble.append(error)
                    break
                time.sleep(_AGAIN_SECONDS)  # the queue outlives its controller
        over.set()

    threading.Thread(target=follow, daemon=True).start()
    over.wait(timeout)
    over.set()
    if trouble and left:
        raise trouble[0]
    if left:
        raise CommandError(
            f"{len(left)} of {len(jobs)} jobs have not ended after {timeout:g} s",
            "they go on",
            f"hcs cpn job {sorted(left)[0]}",
            code=TIMEOUT,
        )
    if json:
        write_data([ended[job.id] for job in jobs], "line")
    bad = [job for job in ended.values() if job.state != "Succeeded"]
    if bad:
        raise CommandError(
            f"{len(bad)} of {len(jobs)} jobs did not succeed" if len(jobs) > 1 else f"job {bad[0].id} {bad[0].state}",
            f"{bad[0].message} ({bad[0].reason})",
            f"hcs cpn job {bad[0].id}",
            code=FAILED,
        )


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CommandError(
            f"cannot read {file}",
            error.strerror or str(error),
            "a file with a Job manifest, or - for stdin",
            code=USAGE,
        ) from error


def _check_all(names: Sequence[str], raws: Sequence[bytes]) -> None:
    """Read all before one is sent: whoever mends the second and calls again would submit the first twice.

    Those with a key of their own are left to the controller, which may know them from before.

    Raises:
        CommandError: one would be refused; which one.
    """
    for name, raw in zip(names, raws, strict=True):
        if not _has_key(raw):
            _asked(name, raw)


def _asked(name: str, raw: bytes) -> Asked:
    """What a manifest asks for, read on this side, by the code the controller reads with."""
    try:
        return read_submission(read_manifest(raw), time.time_ns() // 1_000_000)
    except RefusedError as error:
        no = refused(as_problem(error))
        raise CommandError(f"{name}: {no.what}", no.why, no.try_, code=no.code) from error


def _dry_run(names: Sequence[str], raws: Sequence[bytes], json: bool) -> None:
    for name, raw in zip(names, raws, strict=True):
        asked = _asked(name, raw)
        if json:
            write_data(asked, "line")
            continue
        _show(name, asked)


def _show(name: str, asked: Asked) -> None:
    found = msgspec.to_builtins(asked.submission)
    say(f"{name} would be submitted as:")
    for field, value in found.items():
        if field == "inputs":
            value = ", ".join(f"{blob['digest']}={blob['size']}" for blob in value)
        say(f"  {field + ':':<13} {', '.join(value) if isinstance(value, (list, tuple)) else value}")
    for caution in asked.cautions:
        tell(f"  note: {caution.message}")


def made_up(count: int, seed: int, image: str) -> list[bytes]:
    """Manifests of a generated queue; equal seeds give equal queues."""
    return [msgspec.json.encode(manifest(made, image)) for made in generate(count, seed, ("any",))]


def _write(folder: Path, raws: Sequence[bytes]) -> None:
    import yaml

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, raw in enumerate(raws):
            text = yaml.safe_dump(msgspec.json.decode(raw), sort_keys=False)
            (folder / f"job-{number:05d}.yaml").write_text(text)
    except OSError as error:
        raise CommandError(f"cannot write into {folder}", error.strerror or str(error), "another folder") from error
    tell(f"{len(raws)} manifests in {folder}; hcs cpn submit {folder}/*.yaml")
