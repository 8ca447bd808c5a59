"""Another site: a web server apart from the broker, whose pages attack the broker from a browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = "evil.test"
"""Chromium of these tests resolves it to 127.0.0.1, as an attacker's DNS would."""
PAGE = b"<!doctype html><html lang=en><title>Another site</title><link rel=icon href=data:,><body>"

# Each attack returns what it learnt as text: "nothing", or what another site's page must not know or do.
ATTACKS = """
async ({admin, topic, message}) => {
  const learnt = {};
  const json = {'content-type': 'application/json'};
  const tries = {
    'post as text': ['/v1/recall/window', {method: 'POST', mode: 'no-cors', body: message.window}],
    'post as JSON': ['/v1/recall/window', {method: 'POST', headers: json, body: message.window}],
    'post with a login': ['/v1/recall/window', {method: 'POST', mode: 'no-cors', credentials: 'include',
                                                body: message.window}],
    'post a blob': ['/v1/messages', {method: 'POST', mode: 'no-cors', credentials: 'include',
                                     body: new Blob([message.send], {type: 'text/plain'})}],
    'read': ['/v1/topics', {}],
    'read with a login': ['/v1/topics', {credentials: 'include'}],
    'read without CORS': ['/v1/topics', {mode: 'no-cors', credentials: 'include'}],
    'delete': ['/v1/topics/' + topic, {method: 'DELETE', credentials: 'include'}],
    'change': ['/v1/topics/' + topic, {method: 'PATCH', headers: json, credentials: 'include',
                                       body: '{"perm": 4}'}],
  };
  for (const [name, [path, options]] of Object.entries(tries)) {
    try {
      const answer = await fetch(admin + path, options);
      learnt[name] = answer.type === 'opaque' ? 'nothing' : await answer.text();
    } catch { learnt[name] = 'nothing'; }
  }
  navigator.sendBeacon(admin + '/v1/recall/window', message.window);  // nobody learns its answer
  const element = (tag, attribute, path) => new Promise(done => {
    const made = document.createElement(tag);
    made.onload = () => done('loaded');
    made.onerror = () => done('nothing');
    made[attribute] = admin + path;
    if (tag === 'link') made.rel = 'stylesheet';
    document.body.append(made);
  });
  learnt['an image'] = await element('img', 'src', '/v1/topics');
  learnt['a script'] = await element('script', 'src', '/v1/topics');
  learnt['a style'] = await element('link', 'href', '/v1/topics');
  learnt['events'] = await new Promise(done => {
    const events = new EventSource(admin + '/v1/events', {withCredentials: true});
    events.onopen = events.onmessage = () => { events.close(); done('events'); };
    events.onerror = () => { events.close(); done('nothing'); };
  });
  return learnt;
}
"""


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@contextmanager
def other_site() -> Iterator[int]:
    """Run the site; yield its port on 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
