"""Configurations in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kindlm.config import LoadedSuite, load_suite

Load = Callable[..., LoadedSuite]

COMPLETE = """\
kindlm: 1
project: shop
suite: {name: support, description: The desk, tags: [desk]}
providers:
  openai: {apiKeyEnv: OPENAI_API_KEY, organization: org}
  anthropic: {apiKeyEnv: ANTHROPIC_API_KEY, baseUrl: "http://127.0.0.1:{{serve.agent.port}}"}
  local: {type: openai, baseUrl: "http://{{env.LOCAL_HOST}}/v1"}
  ollama: {}
  fake:
    type: scripted
    replies:
      - {text: "hello {{message}}", delayMs: 1}
      - {toolCalls: [{name: lookup, arguments: {id: A1}}]}
      - {error: rate_limit, retryAfter: 1}
models:
  - id: gpt
    provider: openai
    model: gpt-4o
    params: {temperature: 0, topP: 1, stopSequences: [END], seed: 7}
  - {id: claude, provider: anthropic, model: claude-sonnet-4-5}
  - {id: judge, provider: fake, model: script, role: judge}
agents:
  - id: shop
    adapter: http
    endpoint: "http://127.0.0.1:{{serve.agent.port}}/chat"
    headers: {Authorization: "Bearer {{env.SHOP_TOKEN}}"}
    request: messages
    body: {text: "{{message}}", tenant: "{{env.TENANT}}", list: ["{{env.TENANT}}", 1]}
  - {id: own, type: python, url: "shop.agent:make"}
prompts:
  ask: {system: "You serve {{shop}}.", user: "{{message}}", assistant: "{"}
  filed: {systemFile: prompts/system.md, userFile: prompts/user.md}
tests:
  - name: refund
    prompt: ask
    models: [gpt, claude]
    vars: {shop: ACME, message: Refund me}
    tools:
      - name: lookup
        description: Finds an order
        parameters: {type: object, properties: {id: {type: string}}}
        responses: [{when: {id: A1}, then: {total: 5}}]
        defaultResponse: null
      - {name: refund}
    expect:
      output:
        format: json
        schemaFile: answer.json
        contains: [ok, ok]
        notContains: [no]
        maxLength: 90
      guardrails:
        pii: {customPatterns: [{name: order, pattern: 'A\\d+'}]}
        keywords: {deny: [damn], allow: [sorry, thanks]}
      toolCalls:
        - tool: lookup
          argsMatch: {id: A1}
          argsSchema: args.json
          order: 0
          responseContains: total
        - {tool: lookup}
        - {tool: refund, shouldNotCall: true}
      judge: [{criteria: It is kind, minScore: 0.8, model: judge, rubric: Be strict}]
      baseline: {drift: {method: field-diff, fields: [a.b]}}
    tags: [money, money]
    repeat: 2
    passRate: 0.5
    maxTurns: 4
  - name: filed
    prompt: filed
    vars: {name: Bo}
    models: [gpt]
    skip: true
    expect: {output: {contains: [x]}}
  - name: rows
    prompt: ask
    models: [own, gpt]
    vars: {shop: ACME, message: Hello}
    varsFrom: cases.csv
    strictTools: true
    conversation:
      - user: "And {{message}} for {{id}}?"
        expect: {output: {contains: [already]}}
      - {user: Thanks}
    tools:
      - name: refund
        resultSchema: answer.json
        cassette: {run: latest, match: arguments}
        responses:
          - when: {id: A1}
            whenState: {done: {$absent: true}}
            then: {ok: true}
            setState: {done: "{{args.id}}"}
            delayMs: 5
          - {when: {id: X}, fault: timeout}
          - sequence: [{then: {status: pending}}, {fault: malformed, delayMs: 1}]
      - {name: lookup, defaultResponse: {ok: true}}
    expect:
      toolCalls: [{tool: lookup, before: refund, after: refund, count: {min: 1, max: 2}}]
      trajectory:
        mode: in-order
        calls: [{tool: lookup, count: {max: 2}}, {tool: refund, argsMatch: {id: A1}}]
      judge: [{criteria: It is kind, passes: 3}]
      latency: {maxMs: 5000}
      cost: {maxUsd: 0.00002}
  - name: agents
    prompt: ask
    vars: {shop: ACME, message: Hello}
    expect: {output: {contains: [x]}}
  - name: program
    command: "python agent.py --order={{order_id}} --port {{serve.agent.port}} 'a b'"
    vars: {order_id: "A 1; rm '*'"}
    expect: {output: {contains: [done]}}
gates: {passRateMin: 0.9, costMaxUsd: 2}
defaults:
  repeat: 3
  concurrency: 8
  timeoutMs: 5000
  judgeModel: judge
  retries: 1
  passRate: 0.7
  executionTimeoutMs: 9000
  strictTools: false
serve:
  - name: agent
    command: "python agent.py --port {{serve.agent.port}}"
    ready: "http://127.0.0.1:{{serve.agent.port}}/health"
    env: {MODE: "{{env.MODE}}"}
  - {name: other, command: [run, it], ready: {line: listening}, timeoutMs: 500}
prices: {gpt-4o: {input: 2.5, output: 10}}
record: {redactPii: true, rawBodies: false}
compliance: {enabled: true, outputDir: out, metadata: {systemName: Desk}}
upload: {enabled: false}
"""

FILES = {
    "prompts/system.md": "Be kind, {{name}}.\n",
    "prompts/user.md": "Hi.\n",
    "answer.json": '{"type": "object"}',
    "cases.csv": 'id,message\nfirst,Hello\nsecond,"Line one\nline two"\n',
    "args.json": '{"type": "object", "required": ["id"]}',
}


@pytest.fixture
def complete(tmp_path: Path) -> str:
    """A configuration that uses every key, with its files beside it."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return COMPLETE


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a configuration into the test's folder and load it."""

    def write_and_load(text: str | bytes) -> LoadedSuite:
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "kindlm.yaml").write_bytes(data)
        return load_suite(tmp_path / "kindlm.yaml", root=tmp_path)

    return write_and_load


@pytest.fixture
def minimal() -> str:
    """A valid configuration that ends inside of its only test."""
    return """\
kindlm: 1
project: shop
suite: {name: support}
providers: {openai: {apiKeyEnv: OPENAI_API_KEY}}
models: [{id: gpt, provider: openai, model: gpt-4o}]
prompts: {ask: {user: Hi}}
tests:
  - name: greets
    prompt: ask
    expect: {output: {contains: [hello]}}
"""
