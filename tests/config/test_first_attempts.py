"""What newcomers from other tools write first: each error names the fix."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kindlm.config import LoadedSuite

ATTEMPTS = """
agent: 127.0.0.1:8000/chat
tests: {name: a, input: Hi, expect: {output: {contains: Hi}}}
#> Write http://127.0.0.1:8000/chat
==
agent: shop.example.com/chat
tests: {name: a, input: Hi, expect: {output: {contains: Hi}}}
#> Write https://shop.example.com/chat
==
agent: htp://127.0.0.1:8000/chat
tests: {name: a, input: Hi, expect: {output: {contains: Hi}}}
#> Begin it with http:// or https://
==
agent: agent.py:answer
tests: {name: a, input: Hi, expect: {output: {contains: Hi}}}
#> Name the module: agent:answer
==
agent: python:shop/agent.py:answer
tests: {name: a, input: Hi, expect: {output: {contains: Hi}}}
#> Name the module: agent:answer, with `path: shop`
==
description: My eval
prompts:
  - "Answer the customer: {{question}}"
providers:
  - openai:gpt-4o-mini
tests:
  - description: greets
    vars: {question: "Where is my order?"}
    assert:
      - {type: icontains, value: order}
#> models: [openai/gpt-4o]
#> Did you mean "name"
#> Did you mean "expect"
==
prompts: "{{question}}"
targets:
  - id: http://localhost:8000/chat
    config: {method: POST}
tests:
  - vars: {question: Hi}
    assert: {type: contains, value: hello}
#> Did you mean "agents"? For example: `agent: http://localhost:8000/chat`
#> Did you mean "expect"
==
test_cases:
  - input: Where is my order?
    expected_output: It arrives on Monday
    expected_tools: [lookup_order]
    metrics: [answer_relevancy]
#> Did you mean "tests"? For example: `tests: [{name: greets, input: Hi
==
kindlm: 1
agent: http://localhost:8000/chat
tests:
  - name: order
    input: Where is my order?
    expected_output: Monday
    tools_called: [lookup_order]
    threshold: 0.7
#> expect: {output: {equals: …}}
#> expect: {toolCalls: …}
#> expect: {judge: [{minScore: …}]}
==
kindlm: 1
agent: {type: http, endpoint: "http://localhost:8000/chat"}
tests:
  - name: order
    input: {query: Where is my order?}
    expected:
      tools: [lookup_order]
      output: {contains: [Monday], not_contains: [error]}
    thresholds: {min_score: 70}
#> Did you mean "user"
#> Did you mean "expect"
==
agent: http://localhost:8000/chat
tests:
  - name: order
    prompt: Where is my order A1?
    expect:
      contains: A1
      tool_calls:
        - name: lookup_order
          args: {order_id: A1}
      pii: false
#> Did you mean `input`? `prompt` is the name of an entry of `prompts`
#> output: {contains: …}
#> "toolCalls"
#> guardrails: {pii: …}
==
agent:
  url: http://localhost:8000/chat
  retries: 3
tests:
  - name: order
    concurrency: 2
    input: Where is my order A1?
    expect: {output: {contains: A1}}
#> Write `retries:` in `defaults`: it is for all tests
#> Write `concurrency:` in `defaults`: it is for all tests
==
agent:
  url: http://localhost:8000/chat
  timeout: 30
judge: gpt-4o-mini
runs: 3
tests:
  - name: order
    question: Where is my order A1?
    repeat: 3
    assertions:
      output:
        should_contain: A1
      judges: [Is polite]
#> timeoutMs
#> defaults: {judgeModel: …}
#> defaults: {repeat: …}
#> "input"
#> "expect"
==
agents:
  - {id: clerk, endpoint: "http://localhost:8000/chat"}
  - {id: chef, endpoint: "http://localhost:8001/chat"}
tests:
  - name: order
    input: Where is my order A1?
    agents: [clerk]
    expect: {output: {contains: A1}}
#> Did you mean "models"? For example: `models: [gpt]`
==
agents: [{id: clerk, endpoint: "http://localhost:8000/chat"}]
tests: {name: order, input: Where is my order A1?, agent: clerk, expect: {output: {contains: A1}}}
#> Did you mean "models"? For example: `models: [gpt]`
==
provider: openai
model: gpt-4o-mini
temperature: 0
system: You are a support agent
tests:
  - name: greet
    input: Hi
    expect: hello
#> `model: openai/gpt-4o`
#> models: [{params: {temperature: …}}]
#> tests: [{input: {system: …}}]
#> expect: {output: {contains: [refund]}}
==
agent: http://localhost:8000/chat
tests:
  - name: order
    input: Where is my order A1?
    expect: {latency: {maxTurns: 5}}
#> Write `maxTurns:` in tests[0], beside `expect`
==
agent: http://localhost:8000/chat
serve: [{name: shop, command: npm start, ready: {url: "http://localhost:8000/health"}}]
upload: {enabled: true, url: "https://history.example.com"}
tests: {name: order, input: Where is my order A1?, expect: {output: {contains: A1}}}
#> Add `line:`
#> Known keys: line
#> Did you mean "apiUrl"? For example: `apiUrl: "https://history.example.com/v1"`
#> Add `apiUrl`, such as https://history.example.com
==
agent: http://localhost:8000/chat
tests:
  order:
    input: Where is my order A1?
    expect:
      - contains: A1
      - toolcalls: [lookup_order]
#> tests: [{name: greets, input: Hi
==
agent: http://localhost:8000/chat
defaults: {timeout_ms: 5000, judge_model: openai/gpt-4o-mini}
tests:
  - name: order
    input: Hi
    pass_rate: 0.8
    expect:
      output: {not_contains: error, regexp: "A\\\\d", notMatches: b, max_length: 100, exact: x}
      toolCalls: {tool: a, args_match: {a: 1}, should_not_call: true, times: 2}
      judge: {name: Is polite, threshold: 0.8}
      latency: 2000
gates: {pass_rate: 0.9}
#> "timeoutMs"
#> "judgeModel"
#> "passRate"
#> "notContains"
#> "regex"
#> "notRegex"
#> "maxLength"
#> "equals"
#> "argsMatch"
#> "shouldNotCall"
#> "count"
#> "criteria"
#> "minScore"
#> "passRateMin"
==
agent: http://localhost:8000/chat
tests:
  - name: order
    input: Hi
    expect:
      output: {regex: '(?<quote>["*]).*\\k<quote>'}
      toolCalls: {tool: a, count: 2}
#> Write (?P=quote) for \\k<quote>
#> `count: {min: 2, max: 2}`
"""
"""Files, each with parts of the hints that it gets."""


@pytest.mark.parametrize("attempt", ATTEMPTS.split("==\n"))
def test_errors_of_a_first_attempt_lead_to_the_fix(
    load: Callable[[str], LoadedSuite], attempt: str
) -> None:
    text, *hints = attempt.split("#> ")
    errors = [each.error for each in load(text).diagnostics]
    found = "\n".join(error.hint or "" for error in errors)
    assert [hint for hint in hints if hint.strip() not in found] == []
    assert all(error.where and error.where.line for error in errors)
