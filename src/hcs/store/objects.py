"""What else must outlive the process: bytes under a name, and the cluster objects."""

from typing import Final

import msgspec

from hcs.store.clusters import ClusterConfig
from hcs.store.database import Change, Database
from hcs.store.sealing import seal


class Objects:
    """This part of :class:`hcs.store.queue.QueueStore`."""

    _database: Database

    def keep(self, name: str, raw: bytes) -> None:
        """Keep bytes under a name, in place of what was kept there."""
        with self._database.together():
            self._database.run(
                "INSERT INTO kept VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body", (name, seal(raw))
            )

    def kept(self, name: str) -> bytes | None:
        """What was kept under a name."""
        rows = self._database.rows("SELECT body FROM kept WHERE name = ?", (name,))
        return self._database.unsealed(rows[0][0]) if rows else None

    def put_cluster(self, cluster: ClusterConfig) -> None:
        """Keep a cluster object, in place of that of the same name."""
        with self._database.together():
            self._database.run(
                "INSERT INTO cluster VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body",
                (cluster.name, seal(msgspec.json.encode(cluster))),
            )
            self._database.tell(Change(cluster=cluster.name))

    def drop_cluster(self, name: str) -> bool:
        """Forget a cluster object; False where there is none."""
        with self._database.together():
            dropped = self._database.run("DELETE FROM cluster WHERE name = ?", (name,)).rowcount > 0
            if dropped:
                self._database.tell(Change(cluster=name))
            return dropped

    def clusters(self) -> list[ClusterConfig]:
        """All cluster objects by name."""
        rows = self._database.rows("SELECT body FROM cluster ORDER BY name")
        return [_CLUSTER.decode(self._database.unsealed(row[0])) for row in rows]


_CLUSTER: Final = msgspec.json.Decoder(ClusterConfig)
