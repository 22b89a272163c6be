"""A server that answers as a Kubernetes API server does, with what a real one cannot be made to say."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def failure(code: int, message: str, reason: str = "", **details: Any) -> tuple[int, bytes]:
    """A Status object."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "details": details, "code": code}
    return code, json.dumps(body).encode()


class Server:
    """Answers each request by the first of ``answers`` whose (method, part of the path) fits; keeps what was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, list[tuple[int, bytes] | tuple[int, bytes, dict[str, str]]]]] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                owner.asked.append((self.command, self.path, dict(self.headers), body))
                status, data, headers = owner.answer(self.command, self.path)
                if status == 0:  # the line breaks
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def say(self, method: str, part: str, *answers: Any) -> None:
        """These answers, one after the other; the last one for ever."""
        self.answers.insert(0, (method, part, [one if isinstance(one, tuple) else (200, json.dumps(one).encode()) for one in answers]))

    def answer(self, method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        for wanted, part, answers in self.answers:
            if wanted in ("*", method) and part in path:
                status, data, *headers = answers.pop(0) if len(answers) > 1 else answers[0]
                return status, data, headers[0] if headers else {}
        return 404, b"404 page not found\n", {"Content-Type": "text/plain"}

    def config(self, folder: Path, **context: str) -> Path:
        """A kubeconfig that leads here."""
        path = folder / "kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "t0ken"}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}]}))  # fmt: skip
        return path
