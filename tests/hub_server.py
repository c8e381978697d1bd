"""A hub on this machine: what an upload asks of the real one, over HTTP."""

import base64
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_of_these_tests"
REPO = r"/api/models/(?P<repo>[^/]+/[^/]+)"


class Hub:
    """Repositories by id: {"private": whether they are, "files": {path: bytes}}, and the "message"
    of the last commit."""

    def __init__(self):
        self.repos, self.stored, self.url = {}, {}, ""
        self.read_only, self.full = set(), False  # ids that the token cannot write to; no commits

    def answer(self, method, path, body):
        """(status, JSON) of a request."""
        for verb, pattern, name in self.ROUTES:
            if verb == method and (match := re.fullmatch(pattern, path)):
                return getattr(self, name)(body, **match.groupdict())
        return 404, {"error": f"{method} {path}"}

    ROUTES = (
        ("POST", "/api/repos/create", "create"),
        ("POST", "/api/validate-yaml", "validate"),
        ("GET", REPO, "info"),
        ("GET", f"{REPO}/auth-check/write", "may_write"),
        ("GET", f"{REPO}/tree/main", "tree"),
        ("POST", f"{REPO}/preupload/main", "modes"),
        ("POST", f"{REPO}/commit/main", "commit"),
        ("POST", r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch"),
        ("PUT", "/stored/(?P<oid>[0-9a-f]+)", "store"),
    )

    def create(self, body):
        asked = json.loads(body)
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in self.repos:
            return 409, {"error": "it exists", "url": f"{self.url}/{repo}"}
        private = asked.get("private", asked.get("visibility") == "private")
        self.repos[repo] = {"private": private, "files": {}}
        return 200, {"url": f"{self.url}/{repo}"}

    def validate(self, body):
        return 200, {"errors": [], "warnings": []}

    def info(self, body, repo):
        return 200, {"id": repo, "private": self.repos[repo]["private"], "sha": "0" * 40}

    def may_write(self, body, repo):
        return (403, {"error": "no right to write"}) if repo in self.read_only else (200, {})

    def tree(self, body, repo):
        files = self.repos[repo]["files"].items()
        return 200, [
            {"type": "file", "path": path, "size": len(data), "oid": "0" * 40}
            for path, data in files
        ]

    def modes(self, body, repo):
        names = [file["path"] for file in json.loads(body)["files"]]
        mode = {True: "lfs", False: "regular"}
        return 200, {"files": [
            {"path": n, "uploadMode": mode[n.endswith(".safetensors")], "shouldIgnore": False}
            for n in names
        ]}  # fmt: skip

    def batch(self, body, repo):
        objects = json.loads(body)["objects"]
        return 200, {"transfer": "basic", "objects": [
            one | {"actions": {"upload": {"href": f"{self.url}/stored/{one['oid']}"}}}
            for one in objects
        ]}  # fmt: skip

    def store(self, body, oid):
        self.stored[oid] = body
        return 200, {}

    def commit(self, body, repo):
        if self.full:
            return 403, {"error": "storage is full"}
        files = self.repos[repo]["files"]
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                self.repos[repo]["message"] = value["summary"]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.stored[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        return 200, {"commitUrl": f"{self.url}/{repo}/commit/1", "commitOid": "1"}


@contextmanager
def served_hub():
    """A running hub; its `url` is for HF_ENDPOINT."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            token = self.headers.get("Authorization")
            allowed = token == f"Bearer {TOKEN}" or self.command == "PUT"
            status, value = (
                hub.answer(self.command, path, body)
                if allowed
                else (401, {"error": "invalid token"})
            )
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _reply

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
