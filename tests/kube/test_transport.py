"""No connection is left behind by a request that is given up while the server has not said a word."""

import asyncio
import gc
import ssl
from pathlib import Path

import httpx2
import pytest
import yaml
from lightkube.resources.core_v1 import Node
from tests.waiting import until

from hcs.kube.connection import connect
from hcs.kube.transport import Transport
from hcs.process.certificates import Authority

PROOF = ssl.create_default_context(cadata=Authority.create("nobody").pair.certificate.decode())


class Slow:
    """Takes every connection, sends ``greeting`` once it was spoken to, and then says nothing; counts who is there."""

    def __init__(self, greeting: bytes = b"") -> None:
        self._greeting = greeting
        self.met = self.present = self.silent = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met += 1
        self.present += 1
        try:
            if self._greeting:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self._greeting)
            await reader.read(1)
            self.silent += 1
            await reader.read(-1)
        except OSError:
            pass
        finally:
            self.present -= 1
            writer.close()


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 200 Connected\r\n\r\n"], ids=["directly", "through a proxy"])
def test_a_handshake_that_is_given_up_leaves_no_connection(greeting: bytes) -> None:
    async def story() -> None:
        slow = Slow(greeting)
        async with await asyncio.start_server(slow.talk, "127.0.0.1", 0) as server:
            url = "{}://127.0.0.1:{}".format("http" if greeting else "https", server.sockets[0].getsockname()[1])
            transport = Transport(verify=PROOF, proxy=url if greeting else None)
            async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
                asking = asyncio.create_task(client.get("https://far.invalid/" if greeting else url))
                await until(lambda: slow.silent == 1)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                assert asking.cancelled()
                await until(lambda: slow.present == 0)
                with pytest.raises(httpx2.ConnectTimeout):
                    await client.get("https://far.invalid/" if greeting else url, timeout=1)
                await until(lambda: slow.met == 2 and slow.present == 0)

    asyncio.run(story())
    gc.collect()


def test_a_client_for_a_cluster_leaves_none_either(tmp_path: Path) -> None:
    async def story() -> None:
        slow = Slow()
        async with await asyncio.start_server(slow.talk, "127.0.0.1", 0) as server:
            address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            config = {
                "clusters": [{"name": "c", "cluster": {"server": address, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
            (tmp_path / "config").write_text(yaml.safe_dump(config))
            client = connect(str(tmp_path / "config"))
            asking = asyncio.create_task(client.get(Node, "n1"))
            await until(lambda: slow.silent == 1)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: slow.present == 0)
            await client.close()

    asyncio.run(story())
    gc.collect()
