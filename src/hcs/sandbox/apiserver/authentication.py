"""Who is asking: static bearer tokens, and which paths need none.

The token file is the one kube-apiserver takes with ``--token-auth-file``: ``token,user,uid,"group1,group2"`` per
line. Authorisation is simple on purpose: any authenticated user may do anything that admission does not refuse (on a
real cluster RBAC narrows this), anonymous users may only read health and version.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from hcs.sandbox.apiserver.attempts import User
from hcs.sandbox.apiserver.status import unauthorized

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
ADMIN = User("admin", "admin", ("system:masters",))


class Tokens:
    """Bearer tokens and their users."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = dict(users)

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a token file. Raises ValueError naming the line that is not understood."""
        users: dict[str, User] = {}
        with path.open(newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if not row or row[0].startswith("#"):
                    continue
                if len(row) < 3:
                    raise ValueError(
                        f'{path}:{number}: expected token,user,uid,"group1,group2", found {len(row)} fields'
                    )
                groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
                users[row[0]] = User(row[1], row[2], groups)
        return cls(users)

    def authenticate(self, authorization: str | None) -> User:
        """The user behind an Authorization header. Raises ApiError 401."""
        scheme, _, token = (authorization or "").partition(" ")
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise unauthorized()
        return User(user.name, user.uid, (*user.groups, "system:authenticated"))
