// A support agent over HTTP, without any package. Start it with: node server.mjs
import { createServer } from "node:http";

const ORDERS = { A1: { status: "shipped" }, B2: { status: "delivered" } };
const INSTRUCTIONS = "You are the support agent of a shop. Look every order up before you answer.";
const LOOKUP_ORDER = {
  name: "lookup_order",
  parameters: { type: "object", properties: { order_id: { type: "string" } } },
};

async function complete(messages) {
  const { OPENAI_BASE_URL = "https://api.openai.com/v1", OPENAI_API_KEY } = process.env;
  const answer = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${OPENAI_API_KEY}` },
    body: JSON.stringify({
      model: "gpt-4o-mini",
      messages,
      tools: [{ type: "function", function: LOOKUP_ORDER }],
    }),
  });
  if (!answer.ok) throw new Error(`The model answered ${answer.status}: ${await answer.text()}`);
  return (await answer.json()).choices[0].message;
}

async function answer(messages) {
  const reply = await complete(messages);
  if (!reply.tool_calls?.length) return reply.content;
  const results = reply.tool_calls.map((call) => {
    const order = ORDERS[JSON.parse(call.function.arguments).order_id] ?? { error: "not found" };
    return { role: "tool", tool_call_id: call.id, content: JSON.stringify(order) };
  });
  return answer([...messages, reply, ...results]);
}

const server = createServer(async (request, response) => {
  try {
    const { message } = await new Response(request).json();
    const system = { role: "system", content: INSTRUCTIONS };
    const text = await answer([system, { role: "user", content: message }]);
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ message: text }));
  } catch (error) {
    response.writeHead(500, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: String(error) }));
  }
});
server.listen(process.env.PORT ?? 3000, "127.0.0.1", () => console.log("listening"));
