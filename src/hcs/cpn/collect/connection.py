"""A client for one cluster's API, from what its entry in the list of clusters says.

A cluster that cannot be connected to is no reason to stop: what is wrong with its kubeconfig becomes a sentence, and
the file is read again later, for people mend it while we run. Nothing is ever started as a program, except what a
kubeconfig itself names as its way to log in.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import yaml
from lightkube import AsyncClient, ConfigError, KubeConfig
from lightkube.config.kubeconfig import SingleConfig

from hcs.kube.connection import UNUSABLE, client_for, explain_kubeconfig
from hcs.model.refusals import Refusal, RefusedError

MAX_KUBECONFIG: Final = 1 << 20
"""Bytes of a kubeconfig; one with embedded certificates has some ten thousand."""
_NOT_OF_CLUSTERS: Final = frozenset(("tls-server-name",))
_NOT_OF_USERS: Final = frozenset(("as", "as-uid", "as-groups", "as-user-extra"))


class Site(Protocol):
    """What must be known of a cluster to collect from it; the store's ``ClusterConfig`` is one.

    ``kubeconfig`` is a path and ``kubeconfig_text`` the file itself; with neither, the usual places are looked at.
    ``context`` empty is the current one. ``server`` overrides the address of the API, ``prometheus`` is the base URL of
    its Prometheus; see :class:`~hcs.cpn.collect.prometheus.Address` for the rest of it. ``namespace`` is where our Jobs
    go.
    """

    @property
    def name(self) -> str: ...
    @property
    def kubeconfig(self) -> str: ...
    @property
    def kubeconfig_text(self) -> str: ...
    @property
    def context(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def prometheus(self) -> str: ...
    @property
    def prometheus_token_file(self) -> str: ...
    @property
    def prometheus_ca_file(self) -> str: ...
    @property
    def prometheus_labels(self) -> dict[str, str]: ...
    @property
    def namespace(self) -> str: ...


def edition(site: Site) -> tuple[int, int]:
    """What changes when somebody writes the kubeconfig anew; the same for one that is not in a file of its own."""
    try:
        found = Path(site.kubeconfig).expanduser().stat() if site.kubeconfig else None
    except OSError:
        found = None
    return (0, 0) if found is None else (found.st_mtime_ns, found.st_size)


def same_site(one: Site, other: Site) -> bool:
    """Whether both are reached in the same way; what else their entries say does not matter here."""
    return all(
        getattr(one, field) == getattr(other, field)
        for field in (
            "name",
            "kubeconfig",
            "kubeconfig_text",
            "context",
            "server",
            "prometheus",
            "prometheus_token_file",
            "prometheus_ca_file",
            "prometheus_labels",
            "namespace",
        )
    )


def connect_site(site: Site, *, timeout: float = 10.0) -> AsyncClient:
    """Make a client; nothing is sent yet.

    Args:
        site: the cluster.
        timeout: seconds for each request except watches.

    Raises:
        RefusedError: ``BadKubeconfig``, with what is wrong and where.
    """
    try:
        every, content = _configuration(site)
        config = every.get(site.context or None)
        if config is None:
            raise ConfigError("no context is chosen")
        proxy = _checked(content, config)
        if site.server:
            config = config._replace(cluster=msgspec.structs.replace(config.cluster, server=site.server))
        return client_for(config, timeout=timeout, proxy=proxy)
    except RefusedError:
        raise
    except UNUSABLE as error:
        raise _refused(site, explain_kubeconfig(error)) from error.with_traceback(None)


def _configuration(site: Site) -> tuple[KubeConfig, dict[str, Any]]:
    """The file, and what stands in it; of the usual places only what the client understands is known."""
    if site.kubeconfig_text:
        return _read(site.kubeconfig_text, None)
    if site.kubeconfig:
        path = Path(site.kubeconfig).expanduser()
        with path.open("rb") as file:
            content = file.read(MAX_KUBECONFIG + 1)
        if len(content) > MAX_KUBECONFIG:
            raise ConfigError(f"it is larger than {MAX_KUBECONFIG} bytes")
        return _read(content.decode(), path)
    return KubeConfig.from_env(), {}


def _read(text: str, path: Path | None) -> tuple[KubeConfig, dict[str, Any]]:
    content: Any = yaml.safe_load(text)
    if not isinstance(content, dict):
        raise ConfigError("it is no mapping with clusters, contexts and users")
    return KubeConfig.from_dict(content, fname=path), content


def _checked(content: Mapping[str, Any], config: SingleConfig) -> str | None:
    """The proxy that the chosen cluster is reached through, if any.

    Raises:
        ConfigError: the file asks for what the client would pass over in silence.
    """
    cluster = _entry(content, "clusters", "cluster", config.context.cluster)
    user = _entry(content, "users", "user", config.context.user)
    if odd := sorted({*cluster} & _NOT_OF_CLUSTERS | {*user} & _NOT_OF_USERS):
        raise ConfigError(f"{odd[0]} is not understood here; take it out, and reach the cluster in another way")
    proxy = cluster.get("proxy-url")
    if proxy and not str(proxy).startswith(("http://", "https://")):
        raise ConfigError(f"proxy-url {str(proxy)[:100]!r} is no http address")
    return str(proxy) if proxy else None


def _entry(content: Mapping[str, Any], kind: str, of: str, name: str | None) -> dict[str, Any]:
    named = [one.get(of) for one in content.get(kind) or () if isinstance(one, dict) and one.get("name") == name]
    return named[0] if named and isinstance(named[0], dict) else {}


def _refused(site: Site, what: str) -> RefusedError:
    if site.kubeconfig_text:
        where = "the kubeconfig given for it"
    else:
        where = f"kubeconfig {site.kubeconfig}" if site.kubeconfig else "the kubeconfig of the usual places"
    return RefusedError(
        Refusal("BadKubeconfig", f"cluster {site.name} cannot be connected to, {where} is not usable: {what}")
    )
