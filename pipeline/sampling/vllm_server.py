"""One vLLM server by URL: its requests, and which of its answers are refused."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec

from veriloop.pipeline.config.cluster import Deadlines
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.sampling.connections import out_of_files
from veriloop.pipeline.sampling.sampler import Completion, Digest
from veriloop.pipeline.sampling.transfer.records import Invitation
from veriloop.pipeline.sampling.vllm_cpu import CACHE_BLOCK, STEP_TOKENS

EXTENSION = "veriloop.pipeline.sampling.vllm_worker.VeriloopWorker"
HEALTH_S = 5.0  # for the answer that it is there
RETRY_S = 1.0  # between attempts to reach one that may still be starting, or has no room
REFUSED = (400, 422)  # statuses of a request that is wrong
NO_ROOM = (408, 425, 429)  # statuses of one that may be asked again
DETAIL = 300  # characters of an error response that are shown


def server_arguments(
    config: SamplerConfig, checkpoint: str, *, max_length: int, gpus: int
) -> list[str]:
    """Arguments of vLLM's server for a recipe, without its address; gpus=0: on a CPU."""
    words = ["--model", checkpoint, "--tokens-only", "--generation-config", "vllm"]
    words += ["--dtype", config.dtype, "--logprobs-mode", "processed_logprobs"]
    words += ["--max-model-len", str(max_length), "--max-num-seqs", str(config.max_batch)]
    words += ["--kv-cache-memory-bytes", str(int(config.cache_gib * 2**30))]
    words += ["--worker-extension-cls", EXTENSION]
    words += ["--disable-uvicorn-access-log"]  # a line for each response
    if gpus > 1:
        words += ["--tensor-parallel-size", str(gpus)]
    if not gpus:
        words += ["--no-enable-chunked-prefill", "--block-size", str(CACHE_BLOCK)]
        words += ["--max-num-batched-tokens", str(max(max_length, STEP_TOKENS))]
    if not gpus or not config.graphs:
        words += ["--enforce-eager"]
    return words


class _Token(msgspec.Struct, gc=False):
    logprob: float


class _LogProbs(msgspec.Struct):
    content: list[_Token]


class _Span(msgspec.Struct):
    version: str


class _Choice(msgspec.Struct):
    token_ids: list[int]
    logprobs: _LogProbs
    finish_reason: str | None
    weight_versions: list[_Span] | None = None


class _Answer(msgspec.Struct):
    """The fields of an answer that are read. Decoding these alone takes a tenth of the time of all
    of its 150 bytes per token, which one process reads for all servers."""

    choices: list[_Choice]


_ANSWER = msgspec.json.Decoder(_Answer)


class ServerFaultError(Exception):
    """A server failed to do what was asked."""

    def __init__(self, reason: str, *, status: int = 0, gone: bool = False) -> None:
        """`status`: of its reply, if that was a failure. `gone`: it gave no reply."""
        super().__init__(reason)
        self.status, self.gone = status, gone

    @property
    def refused(self) -> bool:
        """Whether the request was wrong, so that other servers would refuse it too."""
        return self.status in REFUSED


class Silence:
    """Ends all requests to a server that has answered none of them for `seconds`. A single one may
    take longer: it waits in the server while others are answered."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._heard = seconds, 0.0
        self._open: set[asyncio.Timeout] = set()
        self._timer: asyncio.TimerHandle | None = None

    def broken(self) -> None:
        """The server has answered."""
        self._heard = asyncio.get_running_loop().time()

    @asynccontextmanager
    async def bounds(self) -> AsyncIterator[None]:
        """A request. Raises TimeoutError once the server has been silent for too long."""
        loop = asyncio.get_running_loop()
        if not self._open:
            self._heard = loop.time()
            self._timer = loop.call_at(self._heard + self.seconds, self._look, loop)
        async with asyncio.timeout(None) as bound:
            self._open.add(bound)
            try:
                yield
            finally:
                self._open.discard(bound)
                if not self._open and self._timer is not None:
                    self._timer.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if (end := self._heard + self.seconds) > loop.time():
            self._timer = loop.call_at(end, self._look, loop)
            return
        late, self._open = self._open, set()
        for bound in late:
            bound.reschedule(loop.time())


class VllmServer:
    """Every method raises ServerFaultError if the server fails, or is late."""

    transport: httpx2.AsyncBaseTransport  # of the event loop that runs

    def __init__(self, url: str, deadlines: Deadlines) -> None:
        self.url, self._deadlines = url, deadlines
        self._extended = False  # has our worker extension
        self.workers = 1  # processes that hold weights
        self._addresses: dict[str, httpx2.URL] = {}  # by path
        self._silence = Silence(deadlines.answer_s)

    async def meet(self, patience_s: float, *, dtype: str, max_length: int) -> None:
        """Read the server's settings, after waiting up to `patience_s` for it to listen.

        Raises StageError if its settings are not those of the recipe.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + patience_s
        while True:
            try:
                await self._request("GET", "/health", None, HEALTH_S)
                break
            except ServerFaultError:
                if clock() + RETRY_S > end:
                    raise
                await asyncio.sleep(RETRY_S)
        info = await self._control("/server_info?config_format=json", method="GET")
        own_dtype = _field(info, "vllm_config", "model_config", "dtype")
        own_length = _field(info, "vllm_config", "model_config", "max_model_len")
        mode = _field(info, "vllm_config", "model_config", "logprobs_mode")
        for flag, value, right in (
            ("--dtype", str(own_dtype).removeprefix("torch."), dtype),
            ("--logprobs-mode", mode, "processed_logprobs"),
            ("--max-model-len", min(int(own_length), max_length), max_length),
        ):
            if value != right:
                raise StageError(
                    f"the server {self.url} runs with {flag} {value}; the recipe needs {right}"
                )
        parallel = _field(info, "vllm_config", "parallel_config")
        self._extended = _field(parallel, "worker_extension_cls") == EXTENSION
        self.workers = int(parallel.get("world_size", 1))

    async def load(self, folder: str, label: str) -> None:
        """Replace the weights by those in `folder`, under this label."""
        await self.pause()
        if self._extended:
            await self._workers("veriloop_load", args=[folder])
        else:
            await self._workers("reload_weights", kwargs={"weights_path": folder})
        await self.resume(label)

    async def pause(self) -> None:
        """Stop sampling, and drop what a run that was killed has asked."""
        await self._control("/pause?mode=abort")

    def require_extension(self, way: str) -> None:
        """Raise ServerFaultError if it cannot receive what a `Sender` sends."""
        if not self._extended:
            raise ServerFaultError(
                f"cluster.samplers.weights={way}: it was started without --worker-extension-cls "
                f"{EXTENSION}"
            )

    async def receive(self, invitation: Invitation, label: str) -> None:
        """Replace the weights of a paused server by those that a `Sender` sends, which decides how
        long that may take."""
        body = {"method": "veriloop_receive", "args": [msgspec.to_builtins(invitation)]}
        await self._request("POST", "/collective_rpc", body, math.inf)
        await self.resume(label)

    async def resume(self, label: str) -> None:
        """Sample with the weights that it has now, under this label."""
        if not _field(await self._control("/reset_prefix_cache"), "success"):
            raise ServerFaultError("it kept its prefix cache: stale keys and values would be used")
        await self._control("/update_weight_version", {"new_version": label})
        await self._control("/resume")

    async def digests(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Digest]]:
        """Of the weights that it computes with; none without our worker extension."""
        if not self._extended:
            return []
        by_worker = await self._workers("veriloop_digests", args=[dict(shapes)])
        try:
            return [(name, (one, two)) for part in by_worker for name, (one, two) in part]
        except (TypeError, ValueError) as failure:
            raise ServerFaultError(f"digests that make no sense ({failure})") from failure

    async def generate(self, body: Mapping[str, Any], label: str) -> Completion:
        """The response to one request, of weights with this label."""
        content = await self._generated(body)
        try:
            (choice,) = _ANSWER.decode(content).choices
            completion = Completion(
                ids=tuple(choice.token_ids),
                logp=tuple([token.logprob for token in choice.logprobs.content]),
                finish=choice.finish_reason,  # pyright: ignore[reportArgumentType] - compared below
            )
        except (msgspec.DecodeError, ValueError) as failure:
            raise ServerFaultError(f"an answer that makes no sense ({failure})") from failure
        labels = [span.version for span in choice.weight_versions or ()]
        tokens, finish = (len(completion.ids), len(completion.logp)), completion.finish
        if labels != [label]:
            raise ServerFaultError(
                f"it answered with weights labelled {labels}, not {label!r}: it was restarted, or "
                "somebody else loads weights into it"
            )
        if finish not in ("stop", "length") or tokens[0] != tokens[1]:
            raise ServerFaultError(f"a response with {tokens} tokens and log-probs, end {finish!r}")
        self._silence.broken()
        return completion

    async def _generated(self, body: Mapping[str, Any]) -> bytes:
        """The answer. A server without room is asked again for as long as it answers others."""
        path, last = "/inference/v1/generate", ""
        try:
            async with self._silence.bounds():
                while True:
                    try:
                        return await self._request("POST", path, body, math.inf)
                    except ServerFaultError as failure:
                        if failure.status not in NO_ROOM:
                            raise
                        last = f"; {failure}"
                    await asyncio.sleep(RETRY_S)
        except TimeoutError as failure:
            bound = f"{self._silence.seconds:g} s (cluster.deadlines.answer_s)"
            raise ServerFaultError(
                f"{path}: no answer within {bound}{last}", gone=True
            ) from failure

    async def _workers(self, method: str, **arguments: Any) -> Any:
        """The results of a method of all workers."""
        reply = await self._control("/collective_rpc", {"method": method, **arguments})
        return None if reply is None else _field(reply, "results")

    def _address(self, path: str) -> httpx2.URL:
        """Parsed once for all requests."""
        known = self._addresses.get(path)
        if known is None:
            known = self._addresses[path] = httpx2.URL(self.url + path)
        return known

    async def _control(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """The JSON of the response; None for an empty one."""
        try:
            content = await self._request(method, path, body, self._deadlines.sync_s, "sync_s")
        except ServerFaultError as failure:
            hint = "; start it with VLLM_SERVER_DEV_MODE=1" if failure.status == 404 else ""
            raise ServerFaultError(f"{failure}{hint}", gone=failure.gone) from failure
        try:
            return json.loads(content) if content else None
        except ValueError as failure:
            raise ServerFaultError(f"{path}: an answer that is no JSON") from failure

    async def _request(
        self, method: str, path: str, body: Any, seconds: float, key: str = ""
    ) -> bytes:
        """The content of the response."""
        # framed here: one process asks all servers, and a client adds cookies, redirects, defaults
        content = b"" if body is None else msgspec.json.encode(body)
        address = self._address(path)
        request = httpx2.Request(
            method,
            address,
            headers=[
                (b"Host", address.netloc),
                (b"Content-Type", b"application/json"),
                (b"Content-Length", b"%d" % len(content)),
            ],
            stream=httpx2.ByteStream(content),
        )
        try:
            async with asyncio.timeout(seconds if seconds < math.inf else None):
                response = await self.transport.handle_async_request(request)
                try:
                    content = await response.aread()
                finally:
                    await response.aclose()
        except TimeoutError as failure:
            bound = f"{seconds:g} s" + (f" (cluster.deadlines.{key})" if key else "")
            raise ServerFaultError(f"{path}: no answer within {bound}", gone=True) from failure
        except httpx2.HTTPError as failure:
            if out_of_files(failure):
                raise StageError(
                    f"{path} of {self.url}: this process has too many open files for another "
                    "connection; raise the limit (ulimit -n), or set a smaller sampler.max_batch"
                ) from failure
            reason = f"{path}: {type(failure).__name__} {failure}"
            raise ServerFaultError(reason, gone=True) from failure
        if response.status_code != 200:
            raise ServerFaultError(
                f"{path}: HTTP status {response.status_code}: {response.text[:DETAIL]}",
                status=response.status_code,
            )
        return content


def _field(reply: Any, *keys: str) -> Any:
    """A value of a reply. Raises ServerFaultError without it, as of another version of vLLM."""
    value = reply
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            raise ServerFaultError(f"a reply without {'.'.join(keys)}: {str(reply)[:DETAIL]}")
        value = value[key]
    return value
