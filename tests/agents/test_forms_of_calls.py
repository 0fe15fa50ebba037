"""Tool calls as frameworks and platforms report them in JSON, in places that kindlm does not read.

Each answer below has a call of `refund`, in the form of the named product.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.agents.crewai_agent import read_crew
from kindlm.agents.event_streams import read_stream
from kindlm.agents.langgraph_replies import Sent, read_value
from kindlm.agents.reply_reading import Reading, read_reply
from kindlm.ports import AgentReply
from kindlm.transcript import UNNAMED

ARGUMENTS = {"id": 7}
REACT = 'I refund it.\nAction: refund\nAction Input: {"id": 7}\nObservation: ok'
GENKIT = {"role": "model", "content": [{"toolRequest": {"name": "refund", "ref": "0"}}]}
GPT_OSS = {"role": "assistant", "channel": "commentary", "recipient": "functions.refund"}


def names_of(reply: AgentReply) -> list[str]:
    return [use.call.name for use in reply.tool_uses]


def bedrock(**asked: Any) -> dict[str, Any]:
    return {"traces": [{"trace": {"orchestrationTrace": {"invocationInput": asked}}}]}


HIDDEN: dict[str, dict[str, Any]] = {
    "Bedrock": bedrock(actionGroupInvocationInput={"function": "refund", "parameters": []}),
    "Bedrock, knowledge": bedrock(knowledgeBaseLookupInput={"knowledgeBaseId": "refund"}),
    "Bedrock, return": {
        "returnControl": {"invocationInputs": [{"apiInvocationInput": {"apiPath": "/refund"}}]}
    },
    "Bedrock, result": {"observation": {"actionGroupInvocationOutput": {"text": "refund: ok"}}},
    "DSPy": {
        "trajectory": {"thought_0": "I refund.", "tool_name_0": "refund", "tool_args_0": ARGUMENTS}
    },
    "gpt-oss": {"output_messages": [{**GPT_OSS, "content": [{"type": "text", "text": "{}"}]}]},
    "gpt-oss, result": {"messages": [{"role": "functions.refund", "content": "ok"}]},
    "ReAct": {"log": REACT},
    "ReAct in JSON": {"trajectory": [{"thought": "", "action": "refund[7]", "observation": "ok"}]},
    "ReAct in messages": {"messages": [{"role": "assistant", "content": REACT}]},
    "Dify": {"nodes": [{"data": {"node_type": "tool", "title": "refund", "inputs": ARGUMENTS}}]},
    "Flowise": {
        "agentFlowExecutedData": [{"data": {"input": {"selectedTool": "refund"}, "output": {}}}]
    },
    "Copilot Studio": {
        "activities": [
            {"name": "DynamicPlanStepTriggered", "value": {"taskDialogId": "shop.action.refund"}}
        ]
    },
    "Genkit": {"messages": [GENKIT]},
    "Genkit, result": {"content": [{"toolResponse": {"name": "refund", "output": "ok"}}]},
    "Semantic Kernel": {
        "Items": [{"$type": "FunctionCallContent", "FunctionName": "refund", "Arguments": {}}]
    },
    "Semantic Kernel, result": {
        "items": [{"$type": "FunctionResultContent", "functionName": "refund", "result": "ok"}]
    },
    "Microsoft.Extensions.AI": {"Contents": [{"Name": "refund", "Arguments": ARGUMENTS}]},
    "LangChain's events": {"events": [{"event": "on_tool_start", "name": "refund"}]},
    "MCP": {"log": [{"method": "tools/call", "params": {"name": "refund"}}]},
    "Groq": {"executed_tools": [{"index": 0, "type": "refund", "arguments": "{}"}]},
    "Spring AI": {"messages": [{"messageType": "TOOL", "responses": [{"name": "refund"}]}]},
    "OpenTelemetry": {
        "attributes": [{"key": "gen_ai.tool.name", "value": {"stringValue": "refund"}}]
    },
    "OpenInference": {"attributes": {"openinference.span.kind": "TOOL"}, "name": "refund"},
    "OpenLLMetry": {"attributes": {"traceloop.span.kind": "tool"}, "name": "refund"},
    "Agno": {"formatted_tool_calls": ["refund(id=7)"]},
    "a log": {"tool_history": [{"name": "refund", "input": ARGUMENTS}]},
    "a crew": {"agent_executions": [{"toolUsed": "refund", "inputs": ARGUMENTS}]},
    "steps in JSON": {"steps": json.dumps([{"thought": "I refund.", "tool": "refund"}])},
    "a wrapped crew": {"agent_executions": [{"payload": {"tool_used": "refund"}}]},
}


@pytest.mark.parametrize("told", HIDDEN.values(), ids=HIDDEN)
def test_a_call_in_the_form_of_another_product_is_noticed(told: dict[str, Any]) -> None:
    reply = read_reply({"response": "Done.", **told}, Reading())
    assert names_of(reply) == [UNNAMED]
    assert "report them as `tool_calls`, or set `toolCallsPath`" in reply.warnings[0]
    event = "".join(f"data: {json.dumps(each)}\n\n" for each in (told, {"delta": "Done."}))
    assert names_of(read_stream(event, Reading(), has_end=True).reply) == [UNNAMED]


@pytest.mark.parametrize("key", ["a crew", "a wrapped crew", "ReAct", "DSPy"])
def test_crews_and_graphs_notice_it_too(key: str) -> None:
    crew = {"raw": "Done.", "tasks": [{"tool": "pay", "output": "ok"}], **HIDDEN[key]}
    assert names_of(read_crew(json.dumps(crew))) == ["pay", UNNAMED]
    state = {"output": "Done.", "steps": [{"tool": "pay"}], **HIDDEN[key]}
    assert names_of(read_value(state, Sent("Hello"))) == ["pay", UNNAMED]


BEDROCK_MODEL = [
    {"modelInvocationInput": {"type": "ORCHESTRATION", "text": "…", "traceId": "1"}},
    {"modelInvocationOutput": {"rawResponse": {"content": "…"}, "traceId": "1"}},
    {"observation": {"type": "FINISH", "finalResponse": {"text": "Done."}}},
]
"""What agents of Bedrock report of their model, in answers without calls, too."""

ORDINARY: list[dict[str, Any]] = [
    {"thought": "I greet her.", "action": "reply"},
    {"patient": {"name": "Ada", "observation": "pale", "input": "", "result": "ok"}},
    {"items": [{"name": "Hammer", "kind": "hand tool", "product_type": "Tools"}]},
    {"ticket": {"type": "incident", "event": "created", "payload": {"name": "VPN", "priority": 2}}},
    {"ticket": {"request_type": "Tool request", "recipient": "ada@shop.test", "channel": "email"}},
    {"email": {"recipient": "functions.desk@venue.test", "subject": "Gala"}},
    {"venue": {"event": "venue_function_start", "event_type": "Function", "role": "host"}},
    {
        "people": [
            {"name": "Ada", "role": "Functional analyst"},
            {"name": "Bob", "role": "Toolmaker"},
        ]
    },
    {"citations": [{"title": "Tool use", "doc_type": "tool_usage_guide"}]},
    {"symbols": [{"name": "foo", "kind": "function", "parameters": [{"name": "x"}]}]},
    {"usage": {"input_tokens": 3, "server_tool_use": {"web_search_requests": 0}}},
    {"max_tool_calls": 5, "parallel_tool_calls": True, "tool_choice": "auto"},
    {"metadata": {"tools_available": ["refund"], "tool_call_limit": 5, "tool_call_count": 0}},
    {"form": {"method": "POST", "action": "/orders", "inputs": [{"name": "id", "value": "7"}]}},
    {"buttons": [{"type": "postback", "title": "Yes", "payload": {"name": "yes"}}]},
    {"actions": [{"label": "Yes", "action": {"name": "confirm", "type": "openUrl"}}]},
    {"quick_replies": [{"content_type": "text", "title": "Red", "payload": "RED"}]},
    {
        "intent": {"name": "refund", "confidence": 0.98},
        "entities": [{"entity": "id", "value": "7"}],
    },
    {"attributes": [{"key": "color", "value": "red"}, {"key": "tool.size", "value": "10"}]},
    {"reasoning": "Action: none. The user asks about the tool refund."},
    {"trajectory": {"distance": 3}, "span": {"kind": "server", "name": "GET /"}},
    {"node": {"node_type": "llm", "title": "refund"}, "tool_name": "", "tool": None},
    {"lambda": {"function_name": "orders-prod", "memory": 128}, "executions": [{"id": 1}]},
    {"messages": [{"role": "assistant", "content": "Hi", "name": None, "tool_calls": None}]},
    {"call": {"call_id": "C1", "name": "Ada", "type": "inbound"}, "lookup": {"name": "Ada"}},
    {"debate": {"arguments": ["pro", "contra"], "title": "Tools"}, "archetype": "Toolmaker"},
    {"page": {"type": "Toolbar", "children": [{"type": "Tooltip", "text": "Refund"}]}},
    {"lookup_input": {"id": "A1"}, "lookup_output": [{"order": "A1", "status": "shipped"}]},
    {"metrics": {"lambdaFunctionInvocations": [{"at": "12:00", "count": 2}]}},
    {"page": {"doc_type": "tool_result_guide", "pageType": "function-calls"}},
    {"traces": [{"trace": {"orchestrationTrace": each}} for each in BEDROCK_MODEL]},
    {"reasoning": "Action: None\nAction Input: None\nFinal Answer: Done."},
    {"prompt": "Action: the action to take\nAction Input: its input\nObservation: its result"},
    {"prompt": "Action: tool name (one of refund, pay)\nAction Input: the input in JSON"},
    {"prompt": "Action: [one of refund, pay]\nAction Input: <input>"},
]


@pytest.mark.parametrize("told", ORDINARY, ids=range(len(ORDINARY)))
def test_an_ordinary_answer_has_no_calls(told: dict[str, Any]) -> None:
    assert read_reply({"response": "Done.", **told}, Reading()).tool_uses == ()


N8N = {"action": {"tool": "refund", "toolInput": ARGUMENTS, "log": "…"}, "observation": "ok"}
MASTRA = {"type": "tool-call", "payload": {"toolCallId": "c1", "toolName": "refund"}}


@pytest.mark.parametrize(
    "told",
    [
        {"intermediateSteps": [N8N]},
        {
            "toolCalls": [MASTRA | {"payload": MASTRA["payload"] | {"args": ARGUMENTS}}],
            "toolResults": [MASTRA | {"payload": MASTRA["payload"] | {"result": "ok"}}],
        },
        {"usedTools": [{"tool": "refund", "toolInput": ARGUMENTS, "toolOutput": "ok"}]},
        {"tool_calls": [{"tool_name": "refund", "tool_kwargs": ARGUMENTS, "tool_output": "ok"}]},
    ],
    ids=["n8n", "Mastra", "Flowise", "LlamaIndex"],
)
def test_calls_of_these_products_are_read_with_arguments_and_results(told: dict[str, Any]) -> None:
    (use,) = read_reply({"output": "Done.", **told}, Reading()).tool_uses
    assert (use.call.name, use.call.arguments, use.response) == ("refund", ARGUMENTS, "ok")


def test_a_call_that_is_told_again_elsewhere_is_no_other_call() -> None:
    used = [{"tool": "refund", "toolInput": ARGUMENTS, "toolOutput": "ok"}]
    told = {"text": "Done.", "usedTools": used, "log": REACT}
    told["agentReasoning"] = [{"agentName": "desk", "usedTools": used}]
    assert names_of(read_reply(told, Reading())) == ["refund"]
    for other in (REACT.replace("refund", "pay"), REACT.replace("7", "8")):
        told["log"] = other
        assert names_of(read_reply(told, Reading())) == ["refund", UNNAMED]


@pytest.mark.parametrize(("times", "noticed"), [(1, False), (2, True)])
def test_a_call_that_is_told_more_often_elsewhere_is_another_call(
    times: int, noticed: bool
) -> None:
    pay = {"tool": "pay", "arguments": {"amount": 5}}
    told = {"text": "Done.", "tool_calls": [pay], "tool_history": [pay] * times}
    assert names_of(read_reply(told, Reading())) == ["pay", *[UNNAMED] * noticed]


@pytest.mark.parametrize("place", ["children", "result"])
@pytest.mark.parametrize("key", ["tool_calls", "tree", "tool_history"])
def test_a_call_below_one_that_is_read_is_another_call(key: str, place: str) -> None:
    asked = {"tool": "ask", "args": {"whom": "desk"}}
    nested = [asked | {place: [{"tool": "refund", "args": ARGUMENTS}]}]
    told = {"text": "Done.", "tool_calls": [asked], key: nested}
    names = ["ask", *([UNNAMED] * (place == "children"))]  # a result may contain anything
    assert names_of(read_reply(told, Reading())) == names
    event = f"data: {json.dumps(told)}\n\n"
    assert names_of(read_stream(event, Reading(), has_end=True).reply) == names


def test_an_event_that_looks_like_a_call_may_have_others() -> None:
    event = {"messageType": "TOOL", "tool_calls": [{"tool": "ask"}], "log": [{"tool": "refund"}]}
    stream = "".join(f"data: {json.dumps(each)}\n\n" for each in (event, {"delta": "Done."}))
    assert names_of(read_stream(stream, Reading(), has_end=True).reply) == ["ask", UNNAMED]


@pytest.mark.parametrize("log", ['lookup\nAction Input: "A1"', "lookup\nAction Input: A1\n"])
def test_a_text_with_a_call_that_is_read_has_no_other(log: str) -> None:
    told = {"text": "Done.", "tool_calls": [{"tool": "lookup", "tool_input": "A1"}]}
    told["log"] = f"I look.\nAction: {log}"
    assert names_of(read_reply(told, Reading())) == ["lookup"]


def test_a_call_of_langchain_has_the_message_that_asked_for_it() -> None:
    # Tools with one text as input have another form there.
    asked = {"name": "lookup", "args": {"__arg1": "A1"}, "id": "c1", "type": "tool_call"}
    message = {"type": "AIMessageChunk", "content": "", "tool_calls": [asked]}
    action = {"tool": "lookup", "tool_input": "A1", "tool_call_id": "c1", "message_log": [message]}
    told = {"output": "Done.", "intermediate_steps": [[action | {"log": REACT}, "ok"]]}
    assert names_of(read_reply(told, Reading())) == ["lookup"]
    assert names_of(read_value(told, Sent("Hello"))) == ["lookup"]


@pytest.mark.parametrize(("arguments", "noticed"), [("refund(id=7)", True), ({"code": "1"}, False)])
def test_a_program_of_smolagents_may_call_any_tool(arguments: Any, noticed: bool) -> None:
    call = {"function": {"name": "python_interpreter", "arguments": arguments}}
    reply = read_reply({"text": "Done.", "tool_calls": [call]}, Reading())
    assert names_of(reply) == ["python_interpreter", *([UNNAMED] * noticed)]
