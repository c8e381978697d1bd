"""The root file system: the same bytes each time, all that Python loads, nothing of the host's."""

import io
import subprocess
import sys
import tarfile

import pytest

from veriloop.sandbox import interpreter
from veriloop.sandbox.docker import rootfs
from veriloop.sandbox.docker.engine import CODE_LABEL, PACKAGE, code_digest
from veriloop.sandbox.docker.image import build
from veriloop.sandbox.docker.pool import DockerExecutor
from veriloop.sandbox.executor import Call, Program
from veriloop.sandbox.limits import Limits

OURS = "veriloop/veriloop/sandbox/"  # in the image


@pytest.fixture(scope="module")
def written():
    """The root file system of this machine, and the path of its Python."""
    target = io.BytesIO()
    python = rootfs.write(target)
    return target.getvalue(), python


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: member for member in tar}


def test_the_same_machine_gives_the_same_bytes(written):
    again = io.BytesIO()
    rootfs.write(again)
    assert again.getvalue() == written[0]


def test_it_holds_python_its_library_and_what_they_load(written):
    data, python = written
    found = members(data)
    assert python == interpreter.find().path and python.strip("/") in found
    names = set(found)
    for ending in ("/json/__init__.py", "/libc.so.6", "/collections/__init__.py"):
        assert [name for name in names if name.endswith(ending)], ending
    assert [name for name in names if "/ld-linux" in name]
    assert not [name for name in names if "-packages/" in name or "/test/" in name]
    size = sum(member.size for member in found.values())
    assert 10 << 20 < size < 300 << 20


def test_nothing_of_the_hosts_own_is_in_it(written):
    tops = {name.partition("/")[0] for name in members(written[0])}
    links = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}
    ours = {"dev", "etc", "proc", "sys", "tmp", "usr", "veriloop"}
    prefix = interpreter.find().read_only[-1].strip("/").partition("/")[0]  # /usr, or its own
    assert ours <= tops <= ours | links | {prefix}
    assert {name for name in members(written[0]) if name.startswith("etc/")} <= {"etc/ld.so.cache"}


def test_every_file_belongs_to_root_and_lies_in_a_folder_that_is_there(written):
    found = members(written[0])
    assert {(one.uid, one.gid) for one in found.values()} == {(0, 0)}
    assert found["tmp"].mode == 0o1777
    for name, member in found.items():
        above = name.rpartition("/")[0]
        assert not above or found[above].isdir(), name
        if member.isfile():
            assert member.mode in (0o644, 0o755), name


def test_it_holds_the_whole_of_our_package_and_no_clock_shows_in_it(written):
    found = members(written[0])
    ours = {name for name in found if name.startswith(OURS) and found[name].isfile()}
    here = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert ours == {f"{OURS}{path.relative_to(PACKAGE).as_posix()}" for path in here}
    assert {found[name].mtime for name in ours} == {0}


def a_base(path, *names):
    """A tar file that holds an empty file of each name, a device and a link."""
    with tarfile.open(path, "w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
        device = tarfile.TarInfo("./dev/null")
        device.type = tarfile.CHRTYPE
        tar.addfile(device)
    return path


def test_another_root_file_system_gets_our_package_and_loses_its_devices(tmp_path):
    base = a_base(tmp_path / "base.tar", "./usr/bin/python3", "./usr", "./etc/motd", ".")
    target = io.BytesIO()
    assert rootfs.write(target, base) == "/usr/bin/python3"
    found = {name.removeprefix("./") for name in members(target.getvalue())}
    assert {"usr/bin/python3", "etc/motd", f"{OURS}wire.py", "tmp"} <= found
    assert "dev/null" not in found and "dev" in found


def test_one_without_python_is_refused(tmp_path):
    base = a_base(tmp_path / "base.tar", "./etc/motd")
    with pytest.raises(ValueError, match=r"base\.tar has no /usr/bin/python3"):
        rootfs.write(io.BytesIO(), base)


def test_the_digest_names_the_code():
    assert code_digest() == code_digest() and len(code_digest()) == 16
    code = "from veriloop.sandbox.docker.engine import code_digest; print(code_digest())"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == code_digest()


@pytest.mark.docker
def test_an_image_is_named_after_its_content_and_can_have_another_name(engine, image):
    built = build("veriloop-sandbox:named-by-a-test")
    try:
        again = build()
        assert again == built and built.tag.startswith("veriloop-sandbox:")
        made = engine.images.get("veriloop-sandbox:named-by-a-test")
        assert made.labels[CODE_LABEL] == code_digest()
        with DockerExecutor(slots=1, image="veriloop-sandbox:named-by-a-test") as box:
            call = Call(function="f", args=[20])
            done = box.run(Program(source="def f(x): return x + 1"), call, Limits())
        assert done.value == 21
    finally:
        engine.images.remove("veriloop-sandbox:named-by-a-test")
