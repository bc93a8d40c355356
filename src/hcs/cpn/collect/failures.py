"""What went wrong on the way to a server, as one sentence for people: what was seen, and what to look at.

Texts that a server sent are shown cut and without control characters; they go to logs and terminals.
"""

import ssl
from typing import Final

import httpx2
from lightkube import ApiError, ConfigError

SHOWN: Final = 200
"""Characters of a foreign text that are shown."""


def tidy(text: str, limit: int = SHOWN) -> str:
    """A foreign text fit to be shown: one line, printable, not endless.

    >>> tidy("a\\x1b[2Jb\\nc")
    'a?[2Jb c'
    """
    line = " ".join(text[: 4 * limit].split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def explain_api(error: BaseException) -> str:
    """Why a Kubernetes API did not answer as it should."""
    if isinstance(error, ApiError):
        status = error.status
        code = status.code or 0
        said = tidy(status.message or status.reason or "no message")
        advice = {
            401: "; its token or certificate is not accepted: renew the kubeconfig",
            403: "; our account lacks this permission there, see config/cpn/cluster.yaml",
        }.get(code, "")
        return f"the API answered {code}: {said}{advice}"
    if isinstance(error, ConfigError):
        return tidy(str(error))
    return explain_http(error)


def status_code(error: BaseException) -> int | None:
    """The HTTP status of an answer that was an error; an unknown path is answered in plain text, without a Status."""
    if isinstance(error, ApiError):
        return error.status.code
    return error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None


def explain_http(error: BaseException) -> str:
    """Why a server could not be spoken to."""
    cause = _root(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({tidy(cause.verify_message)}); check the authority in use"
    if isinstance(error, (TimeoutError, httpx2.TimeoutException)):
        return "no answer in time"
    if isinstance(error, httpx2.HTTPStatusError):
        return f"it answered HTTP {error.response.status_code}"
    if isinstance(error, httpx2.ConnectError):
        return f"no connection: {tidy(str(error)) or 'refused'}"
    if isinstance(error, (httpx2.HTTPError, httpx2.InvalidURL, OSError)):
        return f"the connection broke: {tidy(str(error)) or type(error).__name__}"
    return f"the answer could not be read: {tidy(str(error)) or type(error).__name__}"


def _root(error: BaseException) -> BaseException:
    for _ in range(8):
        inner = error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return error
