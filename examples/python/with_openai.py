"""The openai client and `blend serve`: documents go beside the messages, and are fused.

    blend serve --model MODEL.gguf --store chunks &
    python with_openai.py [--url http://127.0.0.1:8080/v1] [--question TEXT]
"""

import argparse
import os
import pathlib

import openai

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--question", default=(EXAMPLES / "data" / "question.txt").read_text().strip())
    args = parser.parse_args()
    client = openai.OpenAI(base_url=args.url, api_key=os.environ.get("BLEND_API_KEY", "none"))
    model = client.models.list().data[0].id
    documents = [path.read_text() for path in sorted((EXAMPLES / "data" / "documents").glob("*.txt"))]
    # A model with a chat template has chat.completions as well, with the same extra_body.
    stream = client.completions.create(model=model, prompt=f"Question: {args.question}\nAnswer:", max_tokens=32,
                                       temperature=0, stream=True, stream_options={"include_usage": True},
                                       extra_body={"documents": documents})
    usage = None
    for event in stream:
        usage = event.usage or usage
        print("".join(choice.text for choice in event.choices), end="", flush=True)
    print()
    if usage is not None and usage.prompt_tokens_details is not None:
        print(f"{usage.prompt_tokens} tokens of the prompt, {usage.prompt_tokens_details.cached_tokens} of them reused")


if __name__ == "__main__":
    main()
