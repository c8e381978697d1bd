"""Processes that begin with torch and the samplers imported: forked from one that has them."""

import multiprocessing

IMPORTED = ["tests.vllm_stand_in", "veriloop.pipeline.sampling.torch_engine",
            "veriloop.pipeline.sampling.vllm_worker"]  # fmt: skip


def forked(target, *arguments):
    """(process, connection) of `target(connection, *arguments)`, a function of a module."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    own, others = context.Pipe()
    process = context.Process(target=target, args=(others, *arguments), daemon=True)
    process.start()
    others.close()
    return process, own
