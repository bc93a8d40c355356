"""Speaking to the controller: its address, its token, and its answers as values or as an error in three lines."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import httpx2
import msgspec
import typer

from hcs.cli.errors import FAILED, USAGE, CommandError
from hcs.cpn.wire import PORT, Problem
from hcs.model.refusals import RefusedError

Server = Annotated[
    str,
    typer.Option(
        "--server", envvar="HCS_CPN_SERVER", help="Address of the controller.", metavar="URL", show_default=True
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar="HCS_CPN_TOKEN_FILE", help="File with the token it asks for.", metavar="FILE"),
]
Authority = Annotated[
    Path | None,
    typer.Option("--ca", envvar="HCS_CPN_CA", help="Certificate of whoever signed its own.", metavar="FILE"),
]
DEFAULT_SERVER: Final = f"http://127.0.0.1:{PORT}"
SECONDS: Final = 30.0
_TRIES: Final = 3
_HINTS: Final = {
    "Unauthorized": "--token-file FILE, or HCS_CPN_TOKEN_FILE",
    "UnknownJob": "hcs cpn queue --all",
    "UnknownCluster": "hcs cpn clusters",
    "AmbiguousJob": "more letters of the id",
    "KeyReused": "another --key, or none",
    "KeySpent": "another --key, or none",
    "AlreadyEnded": "hcs cpn queue",
    "NoLog": "hcs cpn job ID shows how far it is",
}

T = TypeVar("T")


class Api:
    """One controller. Used in a ``with`` statement."""

    def __init__(self, server: str, token_file: Path | None, authority: Path | None) -> None:
        """
        Raises:
            CommandError: the address or a file cannot be used.
        """
        self.server = server.rstrip("/")
        if not self.server.startswith(("http://", "https://")):
            raise CommandError(
                f"{server!r} is no address of a controller",
                "it needs http:// or https:// in front",
                f"--server {DEFAULT_SERVER}",
                code=USAGE,
            )
        headers = {}
        if token_file is not None:
            try:
                headers["authorization"] = f"Bearer {token_file.read_text().strip()}"
            except (OSError, UnicodeDecodeError) as error:
                raise CommandError(
                    f"cannot read the token in {token_file}", str(error), "a file with the token", code=USAGE
                ) from error
        try:
            self._http = httpx2.Client(
                base_url=self.server,
                headers=headers,
                timeout=SECONDS,
                trust_env=False,
                verify=str(authority) if authority else self.server.startswith("https://"),
            )
        except (OSError, ValueError, httpx2.InvalidURL) as error:
            raise CommandError(
                f"cannot speak to {server}", str(error), f"--server {DEFAULT_SERVER}", code=USAGE
            ) from error

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
    ) -> T:
        """Ask, and read the answer as ``kind``.

        ``again``: asking twice does no harm, so a connection that breaks is tried again.

        Raises:
            CommandError: no answer, or a no.
        """
        raw = self.raw(method, path, query=query, content=content, headers=headers, again=again).content
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.MsgspecError as error:
            raise CommandError(
                f"{self.server} is no controller",
                f"its answer cannot be read: {error}",
                "hcs cpn run starts one; --server names it",
            ) from error

    def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
    ) -> httpx2.Response:
        """As :meth:`ask`, the answer as it came."""
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._http.request(method, path, params=query, content=content, headers=headers)
            except httpx2.HTTPError as error:
                if not again or attempt == _TRIES or isinstance(error, httpx2.ConnectError):
                    raise self.unreachable(error) from error
                time.sleep(0.2 * attempt)
                continue
            if answer.is_success:
                return answer
            raise self._no(answer)
        raise AssertionError

    def events(self, job: str = "") -> Iterator[tuple[str, Any]]:
        """Changes as they happen: kind and content; a ``beat`` now and then when there is nothing to tell.

        Raises:
            CommandError: no answer, or a no.
        """
        try:
            with self._http.stream("GET", "/events", params={"job": job} if job else None) as answer:
                if not answer.is_success:
                    answer.read()
                    raise self._no(answer)
                kind = ""
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        kind = line[7:]
                    elif line.startswith("data: "):
                        yield kind, msgspec.json.decode(line[6:])
                    elif line.startswith(":"):
                        yield "beat", None
        except httpx2.HTTPError as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> CommandError:
        """No answer at all."""
        return CommandError(
            f"the controller at {self.server} does not answer",
            str(error) or type(error).__name__,
            "hcs cpn run starts one; --server or HCS_CPN_SERVER names another",
            code=FAILED,
        )

    def _no(self, answer: httpx2.Response) -> CommandError:
        try:
            problem = msgspec.json.decode(answer.content, type=Problem)
        except msgspec.MsgspecError:
            return CommandError(
                f"{self.server} is no controller",
                f"it answered {answer.status_code} {answer.reason_phrase}",
                "--server or HCS_CPN_SERVER",
            )
        return refused(problem)


def refused(problem: Problem) -> CommandError:
    """A no of the controller: what is wrong, then what would help."""
    if len(problem.refusals) > 1:
        why = "".join(f"\n        {refusal.reason}: {refusal.message}" for refusal in problem.refusals)
        return CommandError(f"refused for {len(problem.refusals)} reasons", why.strip(), "mend them all, then again")
    message, _, hint = problem.message.rpartition("; ")
    if not message:
        message, hint = hint, ""
    return CommandError(f"refused: {problem.reason}", message, _HINTS.get(problem.reason) or hint or "hcs cpn queue")


def as_problem(error: RefusedError) -> Problem:
    """What was refused on this side, as the controller would have said it."""
    first = error.refusals[0]
    return Problem(first.reason, first.message, error.refusals)


def opened(server: str, token_file: Path | None, authority: Path | None) -> Api:
    """The controller that the common options name."""
    return Api(server, token_file, authority)
