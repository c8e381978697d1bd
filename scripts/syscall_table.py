"""Write the table of system calls, `sandbox/namespace/syscall_table.py`.

    python scripts/syscall_table.py [--check]

Names and numbers come from the installed libseccomp and kernel headers, and from the committed
table itself for calls that are newer than both. With --check nothing is written; the exit code is
1 if they contradict the committed table. It may lack calls: an unknown call is refused.
Needs libseccomp2; the headers are optional (linux-libc-dev).
"""

import ctypes
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "sandbox" / "namespace" / "syscall_table.py"
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
_OF_32_BIT = range(403, 424)  # calls with 64-bit times for 32-bit machines
_UNIFIED = 424  # from here on a call has the same number on all machines
_MOST = 1000  # above every number
_WIDTH = 100
_RENAMED = {"fstatat": "newfstatat"}  # in the generic header, for 64-bit machines
_PLACEHOLDERS = ("arch_specific_syscall", "syscalls")
_HEADER = '''"""Names and numbers of all system calls; written by scripts/syscall_table.py.

Each entry is name:x86-64:arm64, with "-" if the machine lacks the call.
"""

TABLE = """
'''

Numbers = dict[str, int]


def from_libseccomp() -> dict[str, Numbers]:
    """The calls of each machine that the library knows; empty if it is not installed."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return {}
    resolve = library.seccomp_syscall_resolve_num_arch
    resolve.restype = ctypes.c_char_p
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_int]
    tables = dict[str, Numbers]()
    for machine, audit in ARCHITECTURES.items():
        names = [(resolve(audit, number), number) for number in range(_MOST)]
        tables[machine] = {name.decode(): number for name, number in names if name}
    return tables


def from_headers() -> dict[str, Numbers]:
    """The calls of each machine whose kernel header is installed."""
    tables = dict[str, Numbers]()
    for machine, path in HEADERS.items():
        if Path(path).exists():
            text = Path(path).read_text()
            rows: list[tuple[str, str]] = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)
            tables[machine] = {
                _RENAMED.get(name) or name: int(number)
                for name, number in rows
                if name not in _PLACEHOLDERS and int(number) not in _OF_32_BIT
            }
    return tables


def committed() -> dict[str, Numbers]:
    """The calls of each machine in the committed table."""
    scope = dict[str, str]()
    exec(TABLE.read_text(), scope)
    rows = [entry.split(":") for entry in scope["TABLE"].split()]
    return {
        machine: {row[0]: int(row[column]) for row in rows if row[column] != "-"}
        for column, machine in enumerate(ARCHITECTURES, 1)
    }


def merged(sources: Sequence[Mapping[str, Numbers]]) -> dict[str, Numbers]:
    """All calls; the first source that knows a number decides. Numbers from 424 on are shared."""
    tables = {machine: dict[str, int]() for machine in ARCHITECTURES}
    for source in sources:
        for machine, numbers in source.items():
            known = set(tables[machine].values())
            tables[machine] |= {n: k for n, k in numbers.items() if k not in known}
    unified = {n: k for table in tables.values() for n, k in table.items() if k >= _UNIFIED}
    return {machine: unified | table for machine, table in tables.items()}


def contradictions(
    sources: Sequence[Mapping[str, Numbers]], table: Mapping[str, Numbers]
) -> Iterator[str]:
    """Names that have another number in a source than in the table."""
    for source in sources:
        for machine, numbers in source.items():
            for name in sorted(numbers.keys() & table[machine].keys()):
                if numbers[name] != table[machine][name]:
                    yield f"{machine} {name}: {numbers[name]}, not {table[machine][name]}"


def render(tables: Mapping[str, Numbers]) -> str:
    """The module's text."""
    wide, generic = (tables[machine] for machine in ARCHITECTURES)
    names = sorted(wide.keys() | generic.keys(), key=lambda n: (wide.get(n, _MOST), n))
    lines = [""]
    for name in names:
        entry = f"{name}:{wide.get(name, '-')}:{generic.get(name, '-')}"
        if len(lines[-1]) + len(entry) + 1 > _WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {entry}".strip()
    return _HEADER + "\n".join(lines) + '\n"""\n'


def main(words: Sequence[str]) -> int:
    """Write the table, or with --check compare it."""
    library = from_libseccomp()
    if not library:
        print("libseccomp.so.2 is not installed; on Debian: apt-get install libseccomp2")
        return 2
    sources = [library, from_headers(), committed()]
    if "--check" in words:
        wrong = list(contradictions(sources[:-1], sources[-1]))
        print("\n".join(wrong))
        return int(bool(wrong))
    TABLE.write_text(render(merged(sources)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
