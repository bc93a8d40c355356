"""Print the newest glibc symbol version a library needs, and fail where it is newer than 2.17.

The interceptor is preloaded into whatever image a user brings; 2.17 is the oldest glibc that vendors still ship images
on. Reads the ELF version-needs table itself, because neither readelf nor objdump is promised on the building machine.
"""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

NEWEST_ALLOWED = (2, 17)
_DYNSTR_LINK_TYPE = 0x6FFFFFFE  # SHT_GNU_verneed


def needed_versions(path: Path) -> dict[str, set[str]]:
    """Versions the library needs of each other library, e.g. ``{"libc.so.6": {"GLIBC_2.4"}}``.

    Raises ValueError where the file is not a 64-bit little-endian ELF file.
    """
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
    (section_offset,) = struct.unpack_from("<Q", data, 40)
    entry_bytes, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_offset + index * entry_bytes) for index in range(count)]
    needs: dict[str, set[str]] = {}
    for section in sections:
        if section[1] != _DYNSTR_LINK_TYPE:
            continue
        strings = sections[section[6]][4]
        offset = section[4]
        while True:
            _, auxiliaries, file_name, first, following = struct.unpack_from("<HHIII", data, offset)
            versions = needs.setdefault(_text(data, strings + file_name), set())
            at = offset + first
            for _ in range(auxiliaries):
                _, _, _, name, step = struct.unpack_from("<IHHII", data, at)
                versions.add(_text(data, strings + name))
                at += step
            if following == 0:
                break
            offset += following
    return needs


def newest_glibc(needs: dict[str, set[str]]) -> tuple[int, ...]:
    """The newest ``GLIBC_x.y`` among the needs; ``(0,)`` where there is none."""
    found = [
        tuple(int(part) for part in match.group(1).split("."))
        for versions in needs.values()
        for version in versions
        if (match := re.fullmatch(r"GLIBC_([0-9.]+)", version))
    ]
    return max(found, default=(0,))


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def main(arguments: list[str]) -> int:
    """Check each library named; 1 where one needs too new a glibc."""
    failed = False
    for argument in arguments:
        needs = needed_versions(Path(argument))
        newest = newest_glibc(needs)
        shown = ".".join(map(str, newest))
        print(f"{Path(argument).name}: needs {', '.join(sorted(needs))}; newest symbol version GLIBC_{shown}")  # noqa: T201
        failed |= newest > NEWEST_ALLOWED
    if failed:
        print("a symbol version newer than GLIBC_2.17: old vendor images could not load this", file=sys.stderr)  # noqa: T201
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
