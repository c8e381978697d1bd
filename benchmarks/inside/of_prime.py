"""Inside prime verifiers: whole episodes, with our reward configured by name in a taskset.

    python benchmarks/inside/of_prime.py ADAPTER URL

The taskset, loaded by its id, has a harness that sends one request through the interception server,
as every harness must; its client forwards it to an OpenAI-compatible server, here one with fixed
answers. The reward is a copy of ADAPTER, named in the configuration as `module:function` and as
`file:function`, and uses the reward service at URL.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from claims import Claims

SAID = {
    "right": "<think> 1 + 1 </think> <answer>2</answer>",
    "wrong": "<answer>1</answer>",
    "nothing": "1 + 1",
    "ours": "<answer>2</answer>",
}
SCORES = {"right": 1.0, "wrong": 0.0, "nothing": 0.0, "ours": None}
TASKSET = """
import httpx
import verifiers.v1 as vf

class Sum(vf.TaskData):
    answer: str

class SumTask(vf.Task[Sum]):
    pass

class Sums(vf.Taskset[SumTask]):
    def load(self):
        for name in ("right", "wrong", "nothing", "ours"):
            answer = "twelve" if name == "ours" else "2"  # that one is no number
            yield SumTask(Sum(prompt=name, answer=answer), self.config.task)

class Once(vf.Harness[vf.HarnessConfig]):
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        async with httpx.AsyncClient(timeout=60) as client:
            address = endpoint.rstrip("/") + "/chat/completions"
            headers = {"Authorization": f"Bearer {secret}"}
            told = await client.post(address, json=body, headers=headers)
        return vf.ProgramResult(exit_code=int(told.status_code != 200), stdout="", stderr=told.text)

__all__ = ["Once", "Sums"]
"""


class Saying(BaseHTTPRequestHandler):
    """An OpenAI-compatible server; the last message selects the answer."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": SAID[request["messages"][-1]["content"]]}
        body = json.dumps(
            {
                "id": "1", "object": "chat.completion", "created": 0, "model": request["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


async def episodes(address: str, function: str) -> dict[str, Any]:
    """The trace of each task's episode, by the task's prompt."""
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import resolve_env_config

    rewards = {"ours": {"fn": function, "weight": 1.0}}
    env = vf.load_environment(
        resolve_env_config(
            {
                "taskset": {"id": "veriloop_sums", "task": {"rewards": rewards}},
                "agent": {"runtime": {"type": "subprocess"}},
            }
        )
    )
    client = vf.EvalClientConfig(base_url=address, api_key_var="NO_KEY")
    context = vf.ModelContext(model="saying", client=client)
    async with env.serving():
        finished = [await env.run_episode(task, context) for task in env.taskset]
    return {episode.task.data.prompt: episode.traces[0] for episode in finished}


def claim(claims: Claims, way: str, traces: dict[str, Any]) -> None:
    replies = {name: trace.last_reply for name, trace in traces.items()}
    claims.holds(f"{way}: the episodes ran", replies, SAID)
    rewards = {name: value_of(trace.rewards.get("ours")) for name, trace in traces.items()}
    claims.holds(f"{way}: rewards are ours, none where we failed", rewards, SCORES)
    failed = {name: bool(trace.errors) for name, trace in traces.items()}
    wanted = {name: score is None for name, score in SCORES.items()}
    claims.holds(f"{way}: our failure is an error of the trace", failed, wanted)


def value_of(reward: Any) -> float | None:
    return getattr(reward, "value", reward)


def main(adapter: str, url: str) -> None:
    os.environ |= {"VERILOOP_SERVICE": url, "NO_KEY": "none"}
    claims = Claims("load_environment, Env.run_episode", ("verifiers", "openai"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Saying)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "veriloop_sums.py").write_text(TASKSET)
        shutil.copy(adapter, Path(folder) / "veriloop_prime.py")
        sys.path.insert(0, folder)
        traces = asyncio.run(episodes(address, "veriloop_prime:number"))
        claim(claims, "a copy beside it", traces)
        claim(claims, "the file itself", asyncio.run(episodes(address, f"{adapter}:number")))
    server.shutdown()
    claims.tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
