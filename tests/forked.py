"""Processes that begin with torch and the samplers imported: forked from one that has them."""

import atexit
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

CONTEXT = multiprocessing.get_context("forkserver")
ROOT = Path(__file__).parents[1]
IMPORTED = [
    "tests.vllm_stand_in", "veriloop.pipeline.sampling.torch_engine",
    "veriloop.pipeline.sampling.vllm_worker", "veriloop.pipeline.rl.loop", "veriloop.stages.cli",
    "veriloop.stages.rank_worker", "torch._dynamo", "transformers.models.llama.modeling_llama",
]  # fmt: skip


def forked(target, *arguments):
    """(process, connection) of `target(connection, *arguments)`, a function of a module."""
    CONTEXT.set_forkserver_preload(IMPORTED)
    own, others = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(others, *arguments), daemon=True)
    process.start()
    others.close()
    return process, own


def forked_command(words, cwd=ROOT, said=os.devnull, **variables):
    """The process of `veriloop WORDS`, whose output goes to the file `said`."""
    CONTEXT.set_forkserver_preload(IMPORTED)
    named = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **variables}
    arguments = ([*map(str, words)], str(cwd), str(said), {**os.environ, **named})
    process = CONTEXT.Process(target=_command, args=arguments)
    process.start()
    return process


def forked_ranks(words, count, cwd=ROOT, seconds=240):
    """What `count` ranks of `veriloop WORDS` say, as a launcher starts them; each ends with 0."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    whole = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": port}  # fmt: skip
    with TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        ranks = [
            forked_command(
                words, cwd, said,
                **{n: str(v) for n, v in {**whole, "RANK": rank, "LOCAL_RANK": rank}.items()},
            )
            for rank in range(count)
        ]  # fmt: skip
        deadline = time.monotonic() + seconds
        while any(rank.exitcode is None for rank in ranks):
            if any(rank.exitcode for rank in ranks) or time.monotonic() > deadline:
                for rank in ranks:
                    rank.kill()
            time.sleep(0.05)
        text = said.read_text()
    assert [rank.exitcode for rank in ranks] == [0] * count, text[-4000:]
    return text


def _command(words, cwd, said, environment):
    import torch

    from veriloop.stages.cli import entry

    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    os.chdir(cwd)
    sys.argv = ["veriloop", *words]
    try:
        code = entry()
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out
    sys.exit(code)
