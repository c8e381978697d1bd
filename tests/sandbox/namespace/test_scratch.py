"""The folder that executions of a slot share in turn: what one does there, no other finds."""

import os

import pytest

from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor

LIMITS = Limits(cpu_s=2, wall_s=10, memory_mb=256)
LOOK = """
import os
found = os.stat("/tmp")
times = {found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns}
print(os.listdir("/tmp"), oct(found.st_mode), found.st_nlink, found.st_size, len(times))
print(os.listxattr("/tmp"), os.statvfs("/tmp").f_ffree, os.statvfs("/tmp").f_bfree, os.getcwd())
with open("/tmp/new", "w") as new:
    print(os.fstat(new.fileno()).st_ino)
"""
PLANTS = {
    "a file": "open('mark', 'w').write('x')",
    "a file made and removed": "open('mark', 'w').close(); os.remove('mark')",
    "a file that stays open": "f = open('mark', 'w'); f.write('x' * 9999); os.remove('mark')",
    "a folder": "os.makedirs('mark/deep/down')",
    "a folder made and removed": "os.mkdir('mark'); os.rmdir('mark')",
    "a link": "os.symlink('/usr', 'mark')",
    "a pipe": "attempt(os.mkfifo, 'mark')",
    "a mapped file": "import mmap\nf = open('mark', 'w+b'); f.truncate(4096)\n"
    "mapped = mmap.mmap(f.fileno(), 4096); mapped[0] = 1; os.remove('mark')",
    "its mode": "os.chmod('/tmp', 0o755)",
    "its mode and back": "os.chmod('/tmp', 0o755); os.chmod('/tmp', 0o700)",
    "its times": "os.utime('/tmp', (5, 5))",
    "its times, now": "os.utime('/tmp')",
    "an attribute": "attempt(os.setxattr, '/tmp', 'user.mark', b'x')",
    "flags": "import fcntl\nset_flags = 0x40086602\n"
    "attempt(fcntl.ioctl, os.open('/tmp', 0), set_flags, bytes([64]) + bytes(7))",
    "all inodes": "attempt(lambda: [open(f'{n}', 'w').close() for n in range(9999)])",
    "all space": "attempt(lambda: open('mark', 'wb').write(bytes(999_000_000)))",
    "no way in": "os.mkdir('mark'); os.chmod('mark', 0); os.chmod('/tmp', 0)",
    "depth": "for _ in range(500): os.mkdir('d'); os.chdir('d')",
    "only a look": "os.listdir('/tmp'); os.stat('/tmp'); os.path.exists('mark')",
}
PLANT = """
import os
def attempt(step, *arguments):
    try:
        step(*arguments)
    except (OSError, MemoryError):
        pass
"""


@pytest.fixture(scope="module")
def single(strong):
    """One slot, so that all executions follow each other on it."""
    with NamespaceExecutor(slots=1, tier=strong.tier) as executor:
        yield executor


def one(executor, source, limits=LIMITS):
    done = executor.run(Program(source=source), Stdin(), limits)
    assert done.ended == "ok", (done.why, done.stderr)
    return done.stdout


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_done_to_the_folder_ends_with_the_execution(single, plant):
    clean = one(single, LOOK)
    one(single, PLANT + PLANTS[plant])
    assert one(single, LOOK) == clean
    one(single, PLANT + PLANTS[plant])
    one(single, "pass")
    assert one(single, LOOK) == clean


@pytest.mark.parametrize("plant", PLANTS)
def test_it_ends_with_the_case_of_several(single, plant):
    planting = "\n".join(f"    {line}" for line in PLANTS[plant].splitlines())
    looking = "\n".join(f"    {line}" for line in LOOK.splitlines())
    source = f"{PLANT}\nif input() == 'plant':\n{planting}\nelse:\n{looking}"
    order = [b"look", b"plant", b"plant", b"look", b"plant", b"look", b"look"]
    done = single.run_all(Program(source=source), [Stdin(data=each) for each in order], LIMITS)
    assert {each.ended for each in done} == {"ok"}, [each.why for each in done]
    seen = {each.stdout for each, asked in zip(done, order, strict=True) if asked == b"look"}
    assert len(seen) == 1
    assert one(single, LOOK) in seen


def test_a_folder_that_nobody_touched_is_the_same_one_and_a_touched_one_is_not(single):
    where = "import os; print(os.stat('/tmp').st_ctime_ns)"
    first, second = one(single, where), one(single, where)
    one(single, "open('/tmp/mark', 'w').close()")
    assert first == second != one(single, where)


def test_each_execution_gets_the_bounds_it_asked_for(single):
    room = "import os; v = os.statvfs('/tmp'); print(v.f_blocks * v.f_frsize >> 20, v.f_files)"
    small = Limits(cpu_s=2, wall_s=10, memory_mb=256, disk_mb=3, inodes=50)
    told = [one(single, room, limits) for limits in (LIMITS, small, small, LIMITS)]
    assert told == [b"32 2048\n", b"3 50\n", b"3 50\n", b"32 2048\n"]


def test_a_file_without_a_name_is_refused_and_programs_do_without(single):
    refused = (
        "import errno, os\n"
        "try:\n    os.open('/tmp', os.O_TMPFILE | os.O_RDWR)\n"
        "except OSError as failure:\n    print(failure.errno == errno.EOPNOTSUPP)"
    )
    assert one(single, refused) == b"True\n"
    honest = (
        "import tempfile\nwith tempfile.TemporaryFile() as f:\n"
        "    f.write(b'hello'); f.seek(0); print(f.read())"
    )
    assert one(single, honest) == b"b'hello'\n"


def test_no_memory_that_an_execution_can_write_is_shared_with_its_zygote(single):
    one(single, "pass")
    zygote = single._holders[0].ready(()).process.pid
    innermost = max(descendants(zygote))
    with open(f"/proc/{innermost}/maps") as stream:
        access = [line.split()[1] for line in stream]
    assert access
    assert not [flags for flags in access if "w" in flags and "s" in flags]


def descendants(pid):
    """The process and all below it."""
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as stream:
            for child in stream.read().split():
                found += descendants(int(child))
    return found
