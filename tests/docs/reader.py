"""A reader of the pages: types their commands into a shell, in a folder where nothing is yet."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMENT = re.compile(r"\s+#\s.*$")
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
RUN_SIZES = {
    "--start": "models/my-base",
    "--steps": "2",
    "--rollout.prompts": "4",
    "--rollout.per-prompt": "4",
    "--rollout.max-tokens": "8",
    "--evaluation.problems": "2",
    "--evaluation.samples": "1",
    "--sampler.engine": "torch",
    "--verifier-workers": "1",
}
SHORTER = {  # how a command begins: what is added to it, unless it is a dry run or says so itself
    "veriloop zero": RUN_SIZES,
    "veriloop watch": {"--port": "0"},
    "veriloop doctor": {"--sampler": "torch"},
    "python mine/backwards_trl.py": {"2": ""},  # steps
}
PROGRAMS = {  # of the reader's environment; hf download ID --local-dir FOLDER has no network here
    "veriloop": '#!/bin/sh\nexec "{python}" -m veriloop.stages.cli "$@"\n',
    "python": '#!/bin/sh\nexec "{python}" "$@"\n',
    "hf": '#!/bin/sh\nmkdir -p "$(dirname "$4")" && cp -rL "{model}" "$4"\n',
}


def section(page, title=""):
    """The text of a page, or what stands below one of its headings."""
    text = (ROOT / page).read_text()
    if not title:
        return text
    (level,) = re.findall(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    (_, after) = text.split(f"\n{level} {title}\n")
    return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def blocks(text, kind):
    """The fenced blocks of a kind, in order."""
    return [block for _, found, block in FENCED.findall(text) if found == kind]


def lines(text):
    """Every line of the blocks of a page, indented ones too, without indentation and comment."""
    fenced = [line for _, _, block in FENCED.findall(text) for line in block.split("\n")]
    indented = re.findall(r"^(?: {4}|\t)(.*)$", FENCED.sub("", text), re.MULTILINE)
    return [COMMENT.sub("", line).strip() for line in [*fenced, *indented]]


def shortened(command):
    """The command with what SHORTER adds to it."""
    added = next((flags for begin, flags in SHORTER.items() if command.startswith(begin)), {})
    if "--dry-run" in command or "--help" in command:
        return command
    words = [f"{flag} {value}" for flag, value in added.items() if f"{flag} " not in f"{command} "]
    return " ".join([command, *words])


class Reader:
    """`here` is the folder; `page`, a text, is what they read at the moment; a service that they
    start has the port `port`."""

    def __init__(self, here, model, programs, port):
        self.here, self.page, self.port = here, "", str(port)
        (here / "models").mkdir()
        (here / "models/my-base").symlink_to(model)
        for name, text in PROGRAMS.items():
            (programs / name).write_text(text.format(python=sys.executable, model=model))
            (programs / name).chmod(0o755)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        self.environment |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        self.environment |= {"HF_HUB_OFFLINE": "1"}

    def opens(self, page, title=""):
        self.page = section(page, title)

    def command(self, words, more=""):
        """A command, which has to be on the page, as it is run here: with `more` and SHORTER."""
        assert words in lines(self.page), f"the page has no command {words!r}"
        return shortened(f"{words} {more}".strip())

    def types(self, words, more="", code=0):
        """What a command of the page prints."""
        return self.runs(self.command(words, more), code)

    def pastes(self, part):
        """What the one block of shell prints that has a part."""
        (block,) = [block for block in blocks(self.page, "sh") if part in block]
        return self.runs("\n".join(map(shortened, block.split("\n"))))

    def file(self, name, kind, part=""):
        """Writes the one block of a kind that has a part to a file."""
        (block,) = [block for block in blocks(self.page, kind) if part in block]
        (self.here / name).write_text(block)

    def runs(self, text, code=0):
        """What a text of shell prints; what it left in the background is ended."""
        with self.begins(text) as shell:
            assert shell.wait(300) == code and "Traceback" not in self.said(), self.said()
        return self.said()

    def said(self):
        """What the last text of shell has printed by now, errors included."""
        return (self.here / ".said").read_text()

    @contextmanager
    def begins(self, text):
        """The shell that runs a text; it and all that it started is killed afterwards."""
        with (self.here / ".said").open("w") as said:
            shell = subprocess.Popen(
                ["bash", "-e", "-c", text.replace("8080", self.port)],
                cwd=self.here,
                env=self.environment,
                start_new_session=True,
                stdout=said,
                stderr=said,
            )
        try:
            yield shell
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()

    def waits(self, shell, for_it):
        """The first value of a function that is not empty, while the shell still runs."""
        while not (value := for_it()):
            assert shell.poll() is None, self.said()
            time.sleep(0.05)
        return value
