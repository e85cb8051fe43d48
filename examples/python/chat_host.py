"""Messages, documents and tools in, an answer out (examples/README.md): chat_host.py MODEL STORE_DIR PORT [TEMPLATE]"""
import http.server
import json
import pathlib
import sys

import libblend

class Host(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        try:
            asked = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), 1 << 20)))
            max_tokens, tools, grammar = int(asked.get("max_tokens", 64)), json.dumps(asked.get("tools", [])), None
            if asked.get("tools"):
                grammar = libblend.Grammar(self.model, language="call", text=tools, template_source=self.template)
            elif asked.get("schema") is not None:
                grammar = libblend.Grammar(self.model, language="json_schema", text=json.dumps(asked["schema"]))
            fusion = self.model.fuse_messages(self.store, asked["messages"], asked.get("documents", []), tools=tools,
                                              must_call=bool(asked.get("tools")), template_source=self.template)
        except (AttributeError, KeyError, TypeError, ValueError, libblend.BlendError) as error:
            return self.reply(400, "application/json", [json.dumps({"error": str(error)})])
        with fusion:
            self.reply(200, "text/event-stream", self.events(fusion, max_tokens, grammar))

    def events(self, fusion, max_tokens, grammar):
        for token in fusion.generate(max_tokens, grammar=grammar):
            yield f"data: {json.dumps({'text': token.text})}\n\n"
        info = fusion.info
        done = {"rows": info.n_rows, "reused": info.n_rows_reused, "ttft_ms": info.ttft_ns / 1e6}
        yield f"event: done\ndata: {json.dumps(done)}\n\n"

    def reply(self, status, kind, pieces):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece.encode())

model, store, port, *template = sys.argv[1:]
Host.template = pathlib.Path(template[0]).read_text() if template else ""
with libblend.Context() as ctx, libblend.Model(ctx, model) as Host.model, libblend.Store(ctx, store) as Host.store:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Host)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
