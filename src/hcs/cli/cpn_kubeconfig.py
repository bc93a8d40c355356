"""A kubeconfig made fit to be sent: one context, and what it names in files put inside.

The controller may run on another machine, where neither these files nor the programs that log somebody in exist. One
that needs such a program cannot be sent; the controller is given the path of a file of its own instead.
"""

import base64
from pathlib import Path
from typing import Any, Final

import yaml

from hcs.cli.errors import CommandError

_FILES: Final = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
}
_PROGRAMS: Final = ("exec", "auth-provider")


def enclosed(path: Path, context: str | None) -> str:
    """The text to send: the context (None: the current one), its cluster and its user.

    Raises:
        CommandError: unreadable, no such context, or it needs a program.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _no(path, " ".join(str(error).split())) from error
    if not isinstance(document, dict):
        raise _no(path, "it holds no mapping")
    wanted = context or document.get("current-context")
    if not wanted:
        raise _no(path, "it has no current context; name one with --context")
    chosen = _named(document, "contexts", wanted, path).get("context") or {}
    cluster = dict(_named(document, "clusters", chosen.get("cluster"), path).get("cluster") or {})
    user: dict[str, Any] = {}
    if chosen.get("user"):
        user = dict(_named(document, "users", chosen["user"], path).get("user") or {})
    for program in _PROGRAMS:
        if program in user:
            raise CommandError(
                f"{path} logs in with a program ({program})",
                "the controller runs no programs of others",
                "a service account's token in it, or --by-path and a file on the controller's machine",
            )
    for holder in (cluster, user):
        for name, data in _FILES.items():
            if name in holder:
                holder[data] = base64.b64encode(_content(path, holder.pop(name))).decode()
    if "tokenFile" in user:
        user["token"] = _content(path, user.pop("tokenFile")).decode(errors="replace").strip()
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "cluster",
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
    }
    return yaml.safe_dump(made, sort_keys=False)


def _named(document: dict[str, Any], kind: str, name: Any, path: Path) -> dict[str, Any]:
    found = document.get(kind)
    entries: list[dict[str, Any]] = []
    if isinstance(found, list):
        entries = [entry for entry in found if isinstance(entry, dict)]
    for entry in entries:
        if entry.get("name") == name:
            return entry
    known = ", ".join(str(entry.get("name")) for entry in entries) or "none"
    raise _no(path, f"there is no {name!r} among its {kind}; known: {known}")


def _content(path: Path, named: Any) -> bytes:
    file = path.parent / str(named)
    try:
        return file.read_bytes()
    except OSError as error:
        raise _no(path, f"it names {file}: {error.strerror}") from error


def _no(path: Path, why: str) -> CommandError:
    return CommandError(f"cannot use the kubeconfig {path}", why, "kubectl config view shows what it holds")
