"""Load on a service of examples/README.md, in whatever language: N clients for a number of seconds.

    python3 load.py [--clients 50] [--seconds 60] [--json FILE] [--beside NAME=VALUE] -- SERVICE [ARGUMENTS ...]

Starts the service on a port and store of its own, gives it the example documents, asks every question
once alone, and then lets all clients ask at the same time. Every answer must come, whole, and be the
one that was given alone. Prints answers a second, percentiles of the time to the first token, between
tokens and to the end, and the service's memory over the time; checks errors, /metrics, and that SIGTERM
during an answer lets it finish. Exit code 1 if anything was wrong.

With --beside the same is done before with a service that has this in its environment, as with
LD_LIBRARY_PATH=DIR another build of the library.
"""

import argparse
import http.client
import json
import os
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


def streamed(port, question, **more):
    """(status, text, seconds at which each of its events had come) of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    begin = time.monotonic()
    try:
        connection.request("POST", "/ask", json.dumps({"question": question, **more}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        text, times = b"", []
        while part := response.read1(65536):
            text += part
            ends = text.replace(b"\r\n", b"\n").count(b"\n\n")
            times += [time.monotonic() - begin] * (ends - len(times))
        return response.status, text.decode(), times
    finally:
        connection.close()


def timed_ask(port, question, **more):
    """(the account at the end of an answer, seconds at which its tokens came, at its end too); raises
    if it is not whole."""
    status, text, times = streamed(port, question, **more)
    if status != 200:
        raise AssertionError(f"status {status}: {text}")
    came = events(text)
    if not came or came[-1][0] != "done":
        raise AssertionError(f"the answer was cut off: {text!r}")
    done = came[-1][1]
    pieces = "".join(value["text"] for name, value in came[:-1]).strip()
    if pieces != done["answer"]:
        raise AssertionError(f"streamed {pieces!r}, and the end says {done['answer']!r}")
    return done, times


def ask(port, question, **more):
    return timed_ask(port, question, **more)[0]


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
    """N clients at a time, until the time is over."""

    def __init__(self, port, answers, seconds):
        self.port, self.answers = port, answers
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.ttfts, self.gaps, self.latencies, self.wrong = [], [], [], []
        self.n = 0

    def run(self, seed):
        chosen = random.Random(seed)
        while True:  # once at least, however slow the machine is
            question = chosen.choice(QUESTIONS)
            times, problem = [], None
            try:
                done, times = timed_ask(self.port, question)
                if done["answer"] != self.answers[question]:
                    problem = (f"{question!r}: {done['answer']!r}, "
                               f"alone it was {self.answers[question]!r}")
            except Exception as error:  # whatever it is, it is reported
                problem = f"{question!r}: {type(error).__name__}: {error}"
            with self.lock:
                self.n += 1
                if times:
                    self.ttfts.append(times[0])
                    self.gaps += [b - a for a, b in zip(times, times[1:-1])]
                    self.latencies.append(times[-1])
                if problem:
                    self.wrong.append(problem)
            if time.monotonic() >= self.end:
                return


def resident_mib(pid):
    """Resident memory of the process, where the system tells it (Linux)."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) / 1024 if found else None


def percentile(values, share):
    values = sorted(values) or [0.0]
    return values[min(len(values) - 1, int(share * len(values)))]


def load(port, pid, answers, clients, seconds):
    """The figures of the load, and what was wrong."""
    group = Clients(port, answers, seconds)
    threads = [threading.Thread(target=group.run, args=(seed,)) for seed in range(clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    memory = []
    for quarter in range(1, 5):
        time.sleep(max(0, begin + quarter * seconds / 4 - time.monotonic()))
        memory.append(resident_mib(pid))
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    figures = {"clients": clients, "seconds": took, "answers": group.n, "wrong": len(group.wrong),
               "answers_per_s": group.n / took, "tokens_per_s": (len(group.gaps) + len(group.ttfts)) / took,
               "memory_mib": memory}
    print(f"{clients} clients, {took:.1f} s: {group.n} answers, {len(group.wrong)} wrong or lost, "
          f"{figures['answers_per_s']:.1f} a second, {figures['tokens_per_s']:.0f} tokens a second")
    for name, values in (("first_token", group.ttfts), ("between_tokens", group.gaps),
                         ("answer", group.latencies)):
        marks = {f"p{int(share * 100)}": percentile(values, share) * 1e3 for share in (0.5, 0.9, 0.99)}
        figures[name + "_ms"] = marks
        print(f"{name.replace('_', ' '):15}" + "  ".join(f"{k} {v:.0f} ms" for k, v in marks.items()))
    if None not in memory:
        print("memory at each quarter: " + ", ".join(f"{mib:.0f}" for mib in memory) + " MiB")
    for problem in group.wrong[:5]:
        print("  wrong:", problem)
    return figures, group.wrong


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


def run(command, environment, clients, seconds):
    """Starts the service, checks it and puts it under load: its figures."""
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen([*command, "--store", folder, "--port", "0"],
                                   stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
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
            figures, wrong = load(port, service.pid, answers, clients, seconds)
            check(not wrong, f"{len(wrong)} answers were wrong or lost")
            metrics = request(port, "GET", "/metrics")[1]
            counted = (f'blend_requests_total{{path="/ask",code="200"}} '
                       f'{figures["answers"] + len(QUESTIONS)}')
            check(counted in metrics, f"/metrics has no line {counted!r}:\n{metrics}")
            check("blend_store" in metrics, f"/metrics has nothing of the store:\n{metrics}")
            stop_during_an_answer(service, port)
            return figures
        finally:
            if service.poll() is None:
                service.kill()
            service.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", help="also write the figures there")
    parser.add_argument("--beside", metavar="NAME=VALUE", help="an environment to compare with")
    parser.add_argument("service", nargs="+")
    args = parser.parse_args()
    environments = [{}]
    if args.beside:
        name, _, value = args.beside.partition("=")
        environments.insert(0, {name: value})
    rows = []
    try:
        for environment in environments:
            if args.beside:
                print(f"with {args.beside}:" if environment else "as it is:")
            rows.append(run(args.service, environment, args.clients, args.seconds))
    except AssertionError as error:
        sys.exit(f"load.py: {error}")
    if args.json:
        out = {"bench": "load", "as_it_is": rows[-1]}
        if args.beside:
            out["beside"] = rows[0]
        pathlib.Path(args.json).write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
