"""Print as JSON what a program sees and can change of the file tree: survey.py root|user.

The folder /usr/src holds a mount with a folder of its own, below which is another mount.
"""

import json
import sys
from pathlib import Path

from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import linux
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.namespace.selftest import own_user_namespace
from veriloop.sandbox.probe import probe

SURVEY = """
import errno, json, os, stat

def error_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def write(path):
    with open(path, "a") as file:
        file.write("")

facts = {}
for folder in ("/", "/..", "/../..", "/usr", "/usr/src", "/usr/src/a b", "/dev", "/etc", "/tmp"):
    facts["list " + folder] = sorted(os.listdir(folder))
    if folder != "/tmp":
        facts["make in " + folder] = error_of(os.mkdir, folder + "/probe")
devices = ["/dev/" + name for name in os.listdir("/dev")]
mounts = ["/usr", "/usr/src", "/usr/src/a b", "/tmp", *devices]
for path in ("/", "/lib", "/etc/passwd", *mounts):
    status = os.stat(path)
    facts["mode " + path] = [stat.filemode(status.st_mode), status.st_uid, status.st_gid]
    facts["flags " + path] = os.statvfs(path).f_flag
    facts["chmod " + path] = error_of(os.chmod, path, 0o777)
    facts["utime " + path] = error_of(os.utime, path)
for path in ("/etc/passwd", "/usr/src/a b/file", "/dev/null"):
    facts["write " + path] = error_of(write, path)
for path in ("/old", "/proc", "/sys", "/root", "/home", "/tmp/old", "/usr/../old", "/etc/shadow"):
    facts["exists " + path] = os.path.lexists(path)
os.chdir("/")
for call in (os.chroot, os.rmdir, os.unlink):
    facts["call " + call.__name__] = error_of(call, "/tmp")
os.chdir("../../../..")
facts["above"] = sorted(os.listdir("."))
facts["one root"] = os.stat("/").st_ino == os.stat("..").st_ino
print(json.dumps(facts))
"""


def add_mounts() -> None:
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", "/usr/src", "tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC)
    Path("/usr/src/a b").mkdir()
    linux.mount("tmpfs", "/usr/src/a b", "tmpfs", 0)
    Path("/usr/src/a b/file").touch()


def main(way: str) -> None:
    if way == "user":
        own_user_namespace(linux.CLONE_NEWNS)
    else:
        linux.unshare(linux.CLONE_NEWNS)
    add_mounts()
    found = probe()
    assert (found.tier, found.way) == (1, way), str(found)
    with NamespaceExecutor(slots=1) as executor:
        run = executor.run(Program(source=SURVEY), Stdin(), Limits())
        assert run.ended == "ok", (run.why, run.stderr[-1000:])
        again = executor.run(Program(source=SURVEY), Stdin(), Limits())
        assert again.stdout == run.stdout
    details = {layer.name: layer.detail for layer in found.layers}
    print(json.dumps([json.loads(run.stdout), details]))


if __name__ == "__main__":
    main(*sys.argv[1:])
