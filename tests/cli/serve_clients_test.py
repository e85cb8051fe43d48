"""blend serve and the clients that people have: openai's and LangChain's, curl as of HTTP/1.0, and pages in a
browser, of an origin that is allowed and of one that is not. Each is skipped only where its program is absent.

    python3 serve_clients_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from serve_case import DOCUMENTS, ServeCase, chat, run_tests, tool

try:
    import openai
except ImportError:
    openai = None
try:
    import langchain_openai
except ImportError:
    langchain_openai = None

CURL = shutil.which("curl")
BROWSER = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
KEY = {"BLEND_API_KEY": "secret"}


class ClientsTest(ServeCase):
    @unittest.skipIf(openai is None, "the package 'openai' is not installed")
    def test_the_openai_client(self):
        server = self.serve(env=KEY, model=self.slow_model)  # for its context
        client = openai.OpenAI(base_url=server.url, api_key="secret", max_retries=0)
        self.assertEqual([m.id for m in client.models.list()], ["small"])
        extra = {"documents": DOCUMENTS, "ignore_eos": True}
        messages = [{"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "who sat"}]}]
        kwargs = dict(model="small", messages=messages, temperature=0, max_completion_tokens=10)
        answer = client.chat.completions.create(**kwargs, extra_body=extra, logprobs=True, top_logprobs=2)
        self.assertEqual(answer.usage.completion_tokens, 10)
        self.assertEqual(len(answer.choices[0].logprobs.content), 10)
        stream = client.chat.completions.create(**kwargs, extra_body=extra, stream=True,
                                                stream_options={"include_usage": True})
        text, usage = "", None
        for event in stream:
            usage = event.usage or usage
            text += "".join(c.delta.content or "" for c in event.choices)
        self.assertEqual(text, answer.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, 10)
        example = Path(__file__).resolve().parents[2] / "examples/python/with_openai.py"
        ran = subprocess.run([sys.executable, example, "--url", server.url, "--question", "who sat"], text=True,
                             capture_output=True, timeout=60, env={**os.environ, **KEY})
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stdout, r"\d\d\d tokens of the prompt, \d+ of them reused")
        done = client.completions.create(model="small", prompt=["the cat", "a dog"], max_tokens=5, temperature=0)
        self.assertEqual([c.index for c in done.choices], [0, 1])
        legacy = client.completions.create(model="small", prompt="the cat", max_tokens=5, logprobs=4)
        self.assertEqual({len(top) for top in legacy.choices[0].logprobs.top_logprobs}, {4})
        with self.assertRaises(openai.BadRequestError):
            client.chat.completions.create(model="small", messages=[])
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0).models.list()
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="large", messages=messages)

    @unittest.skipIf(openai is None, "the package 'openai' is not installed")
    def test_tools_of_the_openai_client(self):
        server = self.serve(env=KEY, model=self.slow_model)
        client = openai.OpenAI(base_url=server.url, api_key="secret", max_retries=0)
        sums = tool("add", {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"enum": [3, 4]}},
                            "required": ["a", "b"], "additionalProperties": False})
        messages = [{"role": "user", "content": "who sat"}]
        kwargs = dict(model="small", messages=messages, tools=[sums], tool_choice="required", seed=1, max_tokens=60)
        try:
            message = client.chat.completions.create(**kwargs).choices[0].message
        except openai.BadRequestError as error:
            self.assertIn("BLEND_GRAMMAR", str(error))
            self.skipTest("this build has no grammars")
        call, = message.tool_calls
        self.assertEqual(call.function.name, "add")
        self.assertEqual(set(json.loads(call.function.arguments)), {"a", "b"})
        with client.chat.completions.stream(**kwargs) as stream:  # which puts the pieces together
            final = stream.get_final_completion().choices[0]
        self.assertEqual((final.finish_reason, final.message.tool_calls[0].function.arguments),
                         ("tool_calls", call.function.arguments))
        # The client's own form of the next turn.
        messages += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "5"}]
        answer = client.chat.completions.create(model="small", messages=messages, tools=[sums], max_tokens=5,
                                                extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 5)

    @unittest.skipIf(langchain_openai is None, "the package 'langchain_openai' is not installed")
    def test_langchain(self):
        server = self.serve(env=KEY, model=self.slow_model)
        how = dict(base_url=server.url, api_key="secret", model="small", temperature=0, max_tokens=6, max_retries=0)
        both = langchain_openai.OpenAI(**how).generate(["the cat", "a dog ran"])
        self.assertEqual(len(both.generations), 2)
        alone = [langchain_openai.OpenAI(**how).invoke(p) for p in ("the cat", "a dog ran")]
        self.assertEqual([g[0].text for g in both.generations], alone)
        model = langchain_openai.ChatOpenAI(**how, extra_body={"documents": DOCUMENTS}, stream_usage=True)
        answer = model.invoke("who sat")
        self.assertEqual("".join(piece.content for piece in model.stream("who sat")), answer.content)
        self.assertGreater(answer.usage_metadata["input_tokens"], 20)

    @unittest.skipIf(CURL is None, "curl is not installed")
    def test_curl(self):
        server = self.serve()
        body = self.dir / "body.json"
        body.write_text(json.dumps(chat(stream=True)))
        texts = []
        for version in ("-0", "--http1.1"):
            run = subprocess.run([CURL, "-sS", version, "-H", "Content-Type: application/json", "--data", "@" + str(body),
                                  server.url + "/chat/completions"], capture_output=True, timeout=60)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue(run.stdout.endswith(b"data: [DONE]\n\n"), run.stdout[-200:])
            texts.append([json.loads(line[6:])["choices"][0]["delta"] for line in run.stdout.decode().split("\n\n")[:-2]])
        self.assertEqual(*texts)
        # As people write it first: curl's own Content-Type is a form's, and the answer says what to add.
        run = subprocess.run([CURL, "-sS", "--data", "@" + str(body), server.url + "/chat/completions"], capture_output=True, timeout=60)
        self.assertIn(b"Content-Type: application/json", run.stdout)

    @unittest.skipIf(BROWSER is None, "chromium is not installed")
    def test_pages(self):
        told = {}

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                page = PAGE.replace("URL", told["url"]).replace("BODY", json.dumps(chat(documents=DOCUMENTS)))
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def do_POST(self):
                told["result"] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                told["done"].set()

            def log_message(self, *_):
                pass
        site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        self.addCleanup(site.server_close)
        self.addCleanup(site.shutdown)
        origin = f"http://127.0.0.1:{site.server_port}"
        allowed = self.serve("--cors-origin", origin, env=KEY)
        foreign = self.serve("--cors-origin", "https://other.example", env=KEY)
        keyless = self.serve()
        for server, reads in ((allowed, True), (foreign, False), (keyless, False)):
            told.update(url=server.url, result=None, done=threading.Event())
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                browser = subprocess.Popen([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                            "--user-data-dir=" + profile, "--remote-debugging-port=0", origin + "/"],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
                try:
                    self.assertTrue(told["done"].wait(120), "the page did not run")
                finally:
                    browser.terminate()
                    browser.wait(30)
            result = told["result"]
            if reads:
                self.assertGreater(result["whole"]["usage"]["prompt_tokens"], 20)
                self.assertTrue(result["stream"].endswith("data: [DONE]\n\n"))
            else:
                self.assertEqual((result["whole"], result["stream"]), ("TypeError", "TypeError"))
            metrics = server.call("GET", "/metrics", headers={"Authorization": "Bearer secret"})[1].decode()
            n = [float(line.split()[1]) for line in metrics.splitlines() if line.startswith("blend_ttft_seconds_count")]
            self.assertEqual(n, [2.0 if reads else 0.0])  # what was sent without asking was not answered either


PAGE = """<!doctype html><script>
const body = JSON.stringify(BODY);
const headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"};
async function ask(more, read) {
  try {
    const answer = await fetch("URL/chat/completions",
      {method: "POST", headers, body: JSON.stringify({...JSON.parse(body), ...more})});
    return await read(answer);
  } catch (error) { return error.name; }
}
(async () => {
  const whole = await ask({}, a => a.json());
  const stream = await ask({stream: true}, a => a.text());
  // What a browser sends without asking first: no type, or a plain text's.
  for (const type of [undefined, "text/plain"]) {
    try {
      await fetch("URL/chat/completions", {method: "POST", mode: "no-cors", body: new Blob([body], {type})});
    } catch (error) {}
  }
  await fetch("/", {method: "POST", body: JSON.stringify({whole, stream})});
})();
</script>"""


if __name__ == "__main__":
    run_tests()
