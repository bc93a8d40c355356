"""What the vendors' words for a way between two cards mean: which family, how wide, whether memory is reachable.

The agent publishes each tool's own word (``NV12``, ``HCCS``, ``PHB``). A measured bandwidth beside it always wins; the
figures here are nominal, in megabytes per second with both directions added, and good for one thing: to put ways in
order. Where only an order is documented, the figure keeps it and the note says so.

Sources. NVLink, PCIe and the ways across CPUs: ``src/graph/topo.h`` of NCCL (20 GB/s a direction for each NVLink of
Volta to Hopper, 12 for PCIe 3 x16, 10 across sockets), words and their order: the legend of ``nvidia-smi topo -m``,
and of ``nvidia-smi topo -p2p`` for the words that say no. XGMI: ``topo.h`` of RCCL (36 GB/s a direction). HCCS, SIO
and HCCS_SW: the legend of ``npu-smi info -t topo``; 392 GB/s a card over seven peers, Atlas 800T A2. The other vendors'
own links: no figure was read; they stand between PCIe and the others.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from hcs.model.devices import Link


class LinkFacts(msgspec.Struct, frozen=True):
    """One word's meaning.

    ``p2p``: whether the cards reach each other's memory directly; None where the word does not say (across a CPU the
    driver decides). ``mbps`` is nominal.
    """

    family: str
    mbps: int
    p2p: bool | None


UNKNOWN: Final = LinkFacts("", 0, None)
"""Nothing is known about the way; it is taken to be the slowest."""

_NVLINK: Final = 40_000  # for each bonded link
_MTLINK: Final = 30_000  # likewise
_WORDS: Final[dict[str, LinkFacts]] = {
    "NVLINK": LinkFacts("nvlink", _NVLINK, True),
    "SXM": LinkFacts("nvlink", _NVLINK, True),  # modules on one board; how many links is not said, so one
    "HCCS": LinkFacts("hccs", 56_000, True),
    "HCCSSW": LinkFacts("hccs", 56_000, True),
    "SIO": LinkFacts("hccs", 112_000, True),  # two dies of one package: above HCCS, by order only
    "XGMI": LinkFacts("xgmi", 72_000, True),
    "MLULINK": LinkFacts("mlulink", 30_000, True),
    "MLK": LinkFacts("mlulink", 30_000, True),  # cnmon's short word for it
    "MTLINK": LinkFacts("mtlink", _MTLINK, True),
    "METAXLINK": LinkFacts("metaxlink", 30_000, True),
    "MX": LinkFacts("metaxlink", 30_000, True),
    "LARE": LinkFacts("lare", 30_000, True),
    "GCULARE": LinkFacts("lare", 30_000, True),
    "XPULINK": LinkFacts("xpulink", 30_000, True),
    "PIX": LinkFacts("pcie", 24_000, True),
    "PXB": LinkFacts("pcie", 23_000, True),  # more bridges than PIX: by order only
    "PHB": LinkFacts("host", 20_000, None),
    "PCIE": LinkFacts("host", 20_000, None),  # rocm-smi's word for all that is not XGMI
    "NODE": LinkFacts("host", 19_000, None),
    "SYS": LinkFacts("host", 12_000, None),
    **{word: LinkFacts("host", 12_000, False) for word in ("NS", "CNS", "GNS", "TNS", "DR", "NOP2P")},
}
_BONDED: Final = re.compile(r"(NV|MT)(\d{1,3})")


@lru_cache(maxsize=1024)
def read_word(word: str) -> LinkFacts:
    """What a tool's word means; :data:`UNKNOWN` for one that nobody has seen.

    >>> read_word("NV12")
    LinkFacts(family='nvlink', mbps=480000, p2p=True)
    """
    folded = re.sub(r"[\s_-]", "", word.upper())
    bonded = _BONDED.fullmatch(folded)
    if bonded is not None:
        family, each = ("nvlink", _NVLINK) if bonded[1] == "NV" else ("mtlink", _MTLINK)
        return LinkFacts(family, each * int(bonded[2]), True) if int(bonded[2]) else UNKNOWN
    return _WORDS.get(folded, UNKNOWN)


def bandwidth(link: Link) -> int:
    """Megabytes per second, both directions added: measured where somebody measured, else nominal."""
    return read_word(link.kind).mbps if link.mbps is None else link.mbps
