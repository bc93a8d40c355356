"""A connection to the API server: from a kubeconfig, its context, or the pod's own identity.

The usual order holds: an explicit path, ``KUBECONFIG``, the in-cluster service account, ``~/.kube/config``.
"""

from typing import Final

import httpx2
import msgspec
from lightkube import AsyncClient, ConfigError, KubeConfig
from lightkube.core.exceptions import LoadResourceError

__all__ = ["NO_ANSWER", "ApiUnreachableError", "connect"]

NO_ANSWER: Final = (httpx2.HTTPError, LoadResourceError, OSError, msgspec.MsgspecError, ValueError, KeyError)
"""What a client raises where the server did not answer, or something that is no API server did.

A line of a watch that was cut off, a sign-in page with status 200, and an error without a content type come out as
errors of the libraries that read them. ``ApiError`` is one of these too: catch it first.
"""


class ApiUnreachableError(RuntimeError):
    """There is no usable kubeconfig; the message says where it was looked for."""


def connect(kubeconfig: str | None = None, context: str | None = None, *, timeout: float = 10.0) -> AsyncClient:
    """Make a client; nothing is sent yet.

    Args:
        kubeconfig: path of a kubeconfig file; None looks in the usual places.
        context: its context; None takes the current one.
        timeout: seconds for each request except watches.

    Raises:
        ApiUnreachableError: no configuration, or no such context.
    """
    try:
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        single = config.get(context)
    except (ConfigError, FileNotFoundError) as error:
        raise ApiUnreachableError(f"no usable kubeconfig: {error}") from error
    if single is None:
        raise ApiUnreachableError(f"the kubeconfig has no context {context!r}")
    return AsyncClient(
        config=single,
        timeout=httpx2.Timeout(timeout),
        trust_env=False,
        field_manager="hcs",
    )
