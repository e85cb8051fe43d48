"""Load on a service of examples/README.md, in whatever language: N clients for so many seconds.

    python3 load.py [--clients 50] [--seconds 60] -- SERVICE [ARGUMENTS ...]

Starts the service on a port and store of its own, gives it the example documents, asks every question
once alone, and then lets all clients ask at the same time. Every answer must come, whole, and be the
one that was given alone. Prints latency percentiles; checks errors, /metrics, and that SIGTERM during
an answer lets it finish. Exit code 1 if anything was wrong.
"""

import argparse
import http.client
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

EXAMPLES = pathlib.Path(__file__).resolve().parent
DOCUMENTS = sorted((EXAMPLES / "data" / "documents").glob("*.txt"))
QUESTION = (EXAMPLES / "data" / "question.txt").read_text().strip()
ANSWER = "square anchor"
QUESTIONS = [QUESTION, "What does Nils Zorn look after?", "Where does Hugo Rask work?",
             "Where does Nils Zorn work?", "What was left there for good?"]


def request(port, method, path, body=None, timeout=60):
    """(status, text) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def events(text):
    """[(name or None, value)] of a stream of server-sent events."""
    out = []
    for block in filter(None, text.replace("\r\n", "\n").split("\n\n")):
        name, data = None, ""
        for line in block.split("\n"):
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data += line[5:].strip()
        out.append((name, json.loads(data)))
    return out


def ask(port, question, **more):
    """The account at the end of an answer; raises if it is not whole."""
    status, text = request(port, "POST", "/ask", {"question": question, **more})
    if status != 200:
        raise AssertionError(f"status {status}: {text}")
    came = events(text)
    if not came or came[-1][0] != "done":
        raise AssertionError(f"the answer was cut off: {text!r}")
    done = came[-1][1]
    streamed = "".join(value["text"] for name, value in came[:-1]).strip()
    if streamed != done["answer"]:
        raise AssertionError(f"streamed {streamed!r}, and the end says {done['answer']!r}")
    return done


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def check_errors(port):
    """What is wrong has a status and a sentence."""
    for method, path, body, want in (
            ("POST", "/ask", {"question": ""}, 400), ("POST", "/ask", {"question": 7}, 400),
            ("POST", "/ask", ["question"], 400), ("GET", "/nothing", None, 404),
            ("POST", "/nothing", {}, 404)):
        status, text = request(port, method, path, body)
        check(status == want and json.loads(text)["error"],
              f"{method} {path} {body}: {status} {text!r}, not {want}")


class Clients:
    """So many at a time, until the time is over."""

    def __init__(self, port, answers, seconds):
        self.port, self.answers = port, answers
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.latencies, self.wrong = [], []

    def run(self, seed):
        chosen = random.Random(seed)
        while True:  # once at least, however slow the machine is
            question = chosen.choice(QUESTIONS)
            begin = time.monotonic()
            try:
                answer = ask(self.port, question)["answer"]
                problem = None if answer == self.answers[question] else \
                    f"{question!r}: {answer!r}, alone it was {self.answers[question]!r}"
            except Exception as error:  # whatever it is, it is reported
                problem = f"{question!r}: {type(error).__name__}: {error}"
            with self.lock:
                self.latencies.append(time.monotonic() - begin)
                if problem:
                    self.wrong.append(problem)
            if time.monotonic() >= self.end:
                return


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def load(port, answers, clients, seconds):
    group = Clients(port, answers, seconds)
    threads = [threading.Thread(target=group.run, args=(seed,)) for seed in range(clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    n = len(group.latencies)
    marks = "  ".join(f"p{int(share * 100)} {percentile(group.latencies, share) * 1e3:.0f} ms"
                      for share in (0.5, 0.9, 0.95, 0.99))
    print(f"{clients} clients, {took:.1f} s: {n} answers, {len(group.wrong)} wrong or lost, "
          f"{n / took:.1f} a second\nlatency  {marks}  max {max(group.latencies) * 1e3:.0f} ms")
    for problem in group.wrong[:5]:
        print("  wrong:", problem)
    return n, group.wrong


def stop_during_an_answer(service, port):
    """SIGTERM when the first token is there: the rest comes, and the service exits with 0."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/ask", json.dumps({"question": QUESTION}),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    first = response.read1(65536)
    service.send_signal(signal.SIGTERM)
    text = (first + response.read()).decode()
    connection.close()
    check(events(text)[-1][0] == "done", f"an answer was cut off by SIGTERM: {text!r}")
    check(service.wait(30) == 0, f"exit code {service.returncode} after SIGTERM")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("service", nargs="+")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen([*args.service, "--store", folder, "--port", "0"],
                                   stdout=subprocess.PIPE, text=True)
        try:
            line = service.stdout.readline()
            check(line.startswith("listening on http://"), f"the service said {line!r}")
            port = int(line.rsplit(":", 1)[1])
            check(request(port, "POST", "/ask", {"question": "too soon"})[0] == 404,
                  "an answer without documents")
            for path in DOCUMENTS:
                status, text = request(port, "POST", "/documents",
                                       {"name": path.name, "text": path.read_text()})
                check(status == 200 and json.loads(text)["chunks"] >= 1, f"{path.name}: {text}")
            check_errors(port)
            answers = {question: ask(port, question)["answer"] for question in QUESTIONS}
            check(answers[QUESTION] == ANSWER, f"the answer is {answers[QUESTION]!r}")
            n, wrong = load(port, answers, args.clients, args.seconds)
            check(not wrong, f"{len(wrong)} answers were wrong or lost")
            metrics = request(port, "GET", "/metrics")[1]
            counted = f'blend_requests_total{{path="/ask",code="200"}} {n + len(QUESTIONS)}'
            check(counted in metrics, f"/metrics has no line {counted!r}:\n{metrics}")
            check("blend_store" in metrics, f"/metrics has nothing of the store:\n{metrics}")
            stop_during_an_answer(service, port)
        except AssertionError as error:
            sys.exit(f"load.py: {error}")
        finally:
            if service.poll() is None:
                service.kill()
            service.wait()


if __name__ == "__main__":
    main()
