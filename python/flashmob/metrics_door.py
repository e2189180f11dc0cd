"""The metrics' door: /metrics over HTTP, for scrapers that may be slow, many, or mean it ill."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from flashmob.errors import ConfigError
from flashmob.metrics import prometheus_text
from flashmob.units import split_address

if TYPE_CHECKING:
    from flashmob import _core

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Each connection is a descriptor and a thread, and descriptors are what hosts' connections are made of, too. A handful
# of scrapers never needs so many.
MOST_CONNECTIONS = 16
# From the connection to the end of the answer, however the scraper spreads its bytes.
REQUEST_S = 10.0
# How long those that are at an answer may take to see that there is nobody any more.
_CLOSE_S = 1.0
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class MetricsEndpoint:
    """Serves /metrics in a thread of its own until close()."""

    def __init__(self, address: str) -> None:
        """Listens at ADDR:PORT.

        Raises:
            ConfigError: if it cannot.
        """
        # Snapshots and when each was taken, replaced at once: scrapes come from other threads.
        self._known: tuple[Mapping[str, _core.ServerStats], Mapping[str, float]] = ({}, {})
        endpoint = self

        class Handler(_Handler):
            def text(self) -> str:
                return endpoint._text()

        host, port = split_address(address)
        try:
            self._server = _Server((host, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"metrics: cannot listen at {address}: {error.strerror or error}; choose another address or port"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="flashmob-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def update(self, snapshots: Mapping[str, _core.ServerStats], taken_s: Mapping[str, float] | None = None) -> None:
        """What the next scrape gets; `taken_s` says when each snapshot was taken (time.monotonic), now without it."""
        now_s = time.monotonic()
        self._known = (snapshots, {name: (taken_s or {}).get(name, now_s) for name in snapshots})

    def _text(self) -> str:
        """The ages are those of the scrape: they grow where the loop that takes snapshots stands still."""
        snapshots, taken_s = self._known
        now_s = time.monotonic()
        return prometheus_text(snapshots, {name: now_s - then_s for name, then_s in taken_s.items()})

    def close(self) -> None:
        """Stops listening, and hangs up on whoever is there.

        No thread that is left over holds a snapshot then: the compiled module reports what outlives it.
        """
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._known = ({}, {})
        self._server.hang_up(_CLOSE_S)


class _Handler(BaseHTTPRequestHandler):
    """One request and its answer."""

    # Of one receive; _Server ends the whole after as much.
    timeout = REQUEST_S

    def text(self) -> str:
        """What is answered."""
        raise NotImplementedError

    def handle(self) -> None:
        """Answers; a scraper that hangs up meanwhile is no news to whoever serves SSDs."""
        with suppress(OSError):
            super().handle()

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404, "Not found: the metrics are at /metrics")
            return
        body = self.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Says nothing: a scrape is not worth a line."""


class _Server(ThreadingHTTPServer):
    """Few connections at a time, and each for a short time, so that scrapers leave the hosts their descriptors."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._lock = threading.Lock()
        self._until_s: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        try:
            return super().get_request()
        except OSError:
            # Where descriptors have run out, the one that waits is reported again at once and for ever.
            time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread, or turns away who comes when enough are there."""
        with self._lock:
            full = len(self._until_s) >= MOST_CONNECTIONS
            if not full:
                self._until_s[request] = time.monotonic() + REQUEST_S
        if full:
            request.setblocking(False)
            with suppress(OSError):
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # No thread could be started; the base class closes the connection.
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What such a thread does."""
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self._forget(request)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Ends what has taken too long; called twice a second and after each connection."""
        now_s = time.monotonic()
        with self._lock:
            for request, until_s in self._until_s.items():
                if now_s >= until_s:
                    # Its thread finds the end of the connection, and closes it.
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def hang_up(self, timeout_s: float) -> None:
        """Ends all connections, and waits so long for their threads, s."""
        with self._lock:
            for request in self._until_s:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
        deadline_s = time.monotonic() + timeout_s
        while self._until_s and time.monotonic() < deadline_s:
            time.sleep(0.005)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  (the base class's arguments)
        """One line instead of a traceback, and none for what a scraper does to its own connection."""
        error = sys.exception()
        if not isinstance(error, OSError):
            with suppress(OSError, AttributeError):
                sys.stderr.write(f"note: metrics: a request could not be answered: {error!r}\n")

    def _forget(self, request: socket.socket) -> None:
        # Before it is closed: a descriptor that has been closed may be another connection's by now.
        with self._lock:
            self._until_s.pop(request, None)
