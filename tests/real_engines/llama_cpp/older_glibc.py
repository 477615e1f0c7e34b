"""Lets the wheel's libraries load under a glibc before 2.38; run once by `make engines`, in llama.cpp's environment.

The wheel is tagged for any Linux since 2014, but was linked on a new one: it asks for GLIBC_2.38, and needs nothing of
it but the functions __isoc23_strtol, __isoc23_sscanf and their like, which read numbers as strtol and sscanf do (and
binary ones besides). So each such symbol gets the name without its first nine letters and no version, and the version
is no longer demanded. Nothing is computed differently.
"""

import platform
import struct
import sys
from pathlib import Path

PREFIX, VERSION = b"__isoc23_", b"GLIBC_2.38"
WEAK, UNVERSIONED = 2, 1  # VER_FLG_WEAK, VER_NDX_GLOBAL


def sections(data):
    """Offset, size and the number of entries in `info` of every section, by name."""
    start, size, count, names = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HHH", data, 58))
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    return {text(data, rows[names][4] + row[0]): (row[4], row[5], row[7]) for row in rows}


def text(data, offset):
    return bytes(data[offset : data.index(0, offset)])


def renamed(data, table):
    """Gives the symbols of C23 their older names; returns how many there were."""
    (symbols, size, _), (strings, *_), (versions, *_) = (
        table[name] for name in (b".dynsym", b".dynstr", b".gnu.version")
    )
    count = 0
    for i in range(size // 24):
        (name,) = struct.unpack_from("<I", data, symbols + 24 * i)
        if text(data, strings + name).startswith(PREFIX):
            struct.pack_into("<I", data, symbols + 24 * i, name + len(PREFIX))
            struct.pack_into("<H", data, versions + 2 * i, UNVERSIONED)
            count += 1
    return count


def relaxed(data, table):
    """Marks the version as one that may be missing."""
    (need, _, libraries), (strings, *_) = table[b".gnu.version_r"], table[b".dynstr"]
    for _ in range(libraries):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, need)
        at = need + first
        for _ in range(count):
            _, flags, _, name, step = struct.unpack_from("<IHHII", data, at)
            if text(data, strings + name) == VERSION:
                struct.pack_into("<H", data, at + 4, flags | WEAK)
            at += step
        need += following


def main():
    if tuple(map(int, platform.libc_ver()[1].split("."))) >= (2, 38):
        return
    for path in Path(sys.prefix).glob("lib/python*/site-packages/llama_cpp_py_sync/lib*.so*"):
        data = bytearray(path.read_bytes())
        table = sections(data)
        if renamed(data, table):
            relaxed(data, table)
            path.write_bytes(data)


main()
