"""What a run asks of a vLLM server, answered by a stand-in without vLLM.

`python tests/vllm_stand_in.py [--port PORT]` serves made-up tokens until it is killed, and prints
its URL; with `--torch` those of the `--model`. It takes vLLM's other arguments too.
"""

import argparse
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

EXTENSION = "veriloop.pipeline.sampling.vllm_worker.VeriloopWorker"


class StandIn:
    """An honest server; tests change its attributes to have one that is not."""

    def __init__(self, engine=None, *, delay_s=0.0):
        self.engine, self.delay_s, self.url = engine, delay_s, ""
        self.label, self.paused, self.loads = "default", False, True
        self.dtype, self.logprobs_mode, self.room = "torch.float32", "processed_logprobs", 512
        self.extension = EXTENSION if engine else ""
        self.hangs = self.refuses = False
        self.asked, self.told = [], []  # ids of requests begun and answered; folders of weights
        self._one = threading.Lock()  # the engine works for one request at a time
        self.worker = _worker(self)

    def answer(self, path, body):
        """(status, JSON) of a request."""
        name = path.partition("?")[0].rpartition("/")[2]
        return getattr(self, f"on_{name}")(body)

    def on_health(self, _):
        return 200, None

    def on_server_info(self, _):
        model = {
            "dtype": self.dtype,
            "logprobs_mode": self.logprobs_mode,
            "max_model_len": self.room,
        }
        parallel = {"worker_extension_cls": self.extension}
        return 200, {"vllm_config": {"model_config": model, "parallel_config": parallel}}

    def on_pause(self, _):
        self.paused = True
        return 200, {"status": "paused"}

    def on_resume(self, _):
        self.paused = False
        return 200, {"status": "resumed"}

    def on_reset_prefix_cache(self, _):
        return 200, {"success": self.paused}

    def on_update_weight_version(self, body):
        self.label = body["new_version"]
        return 200, {"success": True}

    def on_collective_rpc(self, body):
        if body["method"] == "veriloop_digests":
            (shapes,) = body["args"]
            sizes = {name: tuple(shape) for name, shape in shapes.items()}
            return 200, {"results": [self.engine.digests(sizes)]}
        if body["method"] == "veriloop_receive":
            self.worker.veriloop_receive(*body["args"])
            return 200, {"results": [None]}
        own = body["method"] == "veriloop_load"
        assert own == bool(self.extension), body["method"]
        folder = Path(body["args"][0] if own else body["kwargs"]["weights_path"])
        self.told.append(folder)
        files = sorted(folder.glob("*.safetensors"))
        assert files, folder
        if self.engine is not None and self.loads:
            from safetensors.torch import load_file

            weights = {name: w for file in files for name, w in load_file(file).items()}
            self.engine.load_weights(weights.items(), 0)
        return 200, {"results": [None]}

    def on_generate(self, body):
        self.asked.append(body["request_id"])
        if self.refuses:
            return 400, {"error": {"message": "no such parameter"}}
        while self.hangs:
            time.sleep(0.02)
        time.sleep(self.delay_s)
        ids, logp, finish = self.tokens(body)
        choice = {
            "token_ids": ids,
            "logprobs": {"content": [{"logprob": value} for value in logp]},
            "finish_reason": finish,
            "weight_versions": [{"version": self.label, "start": 0, "end": len(ids)}],
        }
        return 200, {"choices": [choice]}

    def tokens(self, body):
        """(ids, log-probs, finish); without an engine a function of the seed."""
        wanted = SimpleNamespace(**body["sampling_params"])
        if self.engine is None:
            return [wanted.seed % 389, len(body["token_ids"])], [-1.0, -0.5], "length"
        from veriloop.pipeline.sampling.sampler import Sampling

        sampling = Sampling(
            per_prompt=1,
            temperature=wanted.temperature,
            max_tokens=wanted.max_tokens,
            seed=wanted.seed or 0,  # greedy
        )
        with self._one:
            ((one,),) = self.engine.sample([body["token_ids"]], sampling)
        return list(one.ids), list(one.logp), one.finish


def _worker(stand_in):
    """Our extension of vLLM's worker, which loads into the stand-in's engine."""
    import torch

    from veriloop.pipeline.sampling.vllm_worker import VeriloopWorker

    class Worker(VeriloopWorker):
        rank, device = 0, torch.device("cpu")

        def _reload(self, weights):
            taken = list(weights)
            if stand_in.engine is not None and stand_in.loads:
                stand_in.engine.load_weights(taken, 0)

    return Worker()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        try:
            asked = json.loads(body) if body else None
            status, value = self.server.stand_in.answer(self.path, asked)
        except Exception as failure:  # noqa: BLE001 - as a server does
            status, value = 500, {"error": {"message": repr(failure)}}
        content = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer

    def log_message(self, format, *args):
        """Be quiet."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A run hangs up on servers that it drops."""


@contextmanager
def serving(stand_in, port=0, host="127.0.0.1"):
    """The stand-in, on a port of this machine."""
    server = _Server((host, port), _Handler)
    server.stand_in = stand_in
    stand_in.url = f"http://{host}:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield stand_in
    finally:
        stand_in.hangs = False
        server.shutdown()
        server.server_close()


def serve(connection, checkpoint):
    """In a process of its own: answer with the model of the checkpoint until it is killed."""
    from veriloop.pipeline.sampling.torch_engine import TorchSampler

    with serving(StandIn(TorchSampler(checkpoint))) as stand_in:
        connection.send(stand_in.url)
        threading.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--model")
    parser.add_argument("--torch", action="store_true")
    asked, _ = parser.parse_known_args()
    engine = None
    if asked.torch:
        from veriloop.pipeline.sampling.torch_engine import TorchSampler

        engine = TorchSampler(asked.model)
    with serving(StandIn(engine, delay_s=0.05), asked.port, asked.host) as made_up:
        print(made_up.url, flush=True)
        threading.Event().wait()
