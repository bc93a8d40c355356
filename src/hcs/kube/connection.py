"""A connection to the API server: from a kubeconfig, its context, or the pod's own identity.

The usual order holds: an explicit path, ``KUBECONFIG``, the in-cluster service account, ``~/.kube/config``.
"""

import base64
from typing import Final

import httpx2
import msgspec
import yaml
from lightkube import AsyncClient, ConfigError, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import LoadResourceError

from hcs.kube.transport import Transport

__all__ = ["NO_ANSWER", "UNUSABLE", "ApiUnreachableError", "client_for", "connect", "explain_kubeconfig"]

NO_ANSWER: Final = (httpx2.HTTPError, LoadResourceError, OSError, msgspec.MsgspecError, ValueError, KeyError)
"""What a client raises where the server did not answer, or something that is no API server did.

A line of a watch that was cut off, a sign-in page with status 200, and an error without a content type come out as
errors of the libraries that read them. ``ApiError`` is one of these too: catch it first.
"""


UNUSABLE: Final = (
    ConfigError,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    yaml.YAMLError,
    httpx2.InvalidURL,
)
"""What the client's reader of kubeconfigs raises for files of another shape than kubectl writes."""


class ApiUnreachableError(RuntimeError):
    """There is no usable kubeconfig; the message says where it was looked for."""


def connect(kubeconfig: str | None = None, context: str | None = None, *, timeout: float = 10.0) -> AsyncClient:
    """Make a client; nothing is sent yet.

    Args:
        kubeconfig: path of a kubeconfig file; None looks in the usual places.
        context: its context; None takes the current one.
        timeout: seconds for each request except watches.

    Raises:
        ApiUnreachableError: no configuration, no such context, or certificates that cannot be used.
    """
    try:
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        single = config.get(context)
        if single is None:
            raise ConfigError("no context is chosen")
        return client_for(single, timeout=timeout)
    except UNUSABLE as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "kubeconfig"
        raise ApiUnreachableError(f"no usable {where}: {explain_kubeconfig(error)}") from error.with_traceback(None)


def explain_kubeconfig(error: BaseException) -> str:
    """What is wrong with a kubeconfig, in one line, from what reading it raised.

    Pass such an error on without its traceback: its frames hold the files that certificates were decoded into.
    """
    if isinstance(error, (TypeError, AttributeError, IndexError, AssertionError)):
        return "it is no mapping with clusters, contexts and users as kubectl writes them"
    what = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename and str(error.filename) not in what:
        what = f"{what}: {error.filename}"
    return " ".join(what.split())[:300]


def client_for(config: SingleConfig, *, timeout: float, proxy: str | None = None) -> AsyncClient:
    """A client for one context of a kubeconfig; nothing is sent yet.

    Args:
        config: the context; it names a user.
        timeout: seconds for each request except watches.
        proxy: URL of the proxy that the server is reached through.

    Raises:
        ConfigError: it names no user, or a certificate is incomplete or no base64.
        OSError: a certificate cannot be read; ``ssl.SSLError`` is one.
    """
    user = config.user
    if user is None:
        raise ConfigError(f"context {config.context_name!r} names no user")
    for field, data in (
        ("certificate-authority-data", config.cluster.certificate_auth_data),
        ("client-certificate-data", user.client_cert_data),
        ("client-key-data", user.client_key_data),
    ):
        # The client decodes them into files, and forgets the file where that fails.
        try:
            base64.b64decode(data or "")
        except ValueError as error:
            raise ConfigError(f"{field} is no base64: {error}") from None
    if bool(user.client_cert or user.client_cert_data) != bool(user.client_key or user.client_key_data):
        raise ConfigError("a client certificate and its key belong together, and one of them is missing")
    verify = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
    return AsyncClient(
        config=config,
        timeout=httpx2.Timeout(timeout),
        trust_env=False,
        transport=Transport(verify=verify, proxy=proxy),
        field_manager="hcs",
    )
