// The official JavaScript client.
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

const OpenAI = createRequire(process.env.NODE_PATH + "/")("openai");

const task = JSON.parse(await text(process.stdin));
const client = new OpenAI({ baseURL: task.url + "/v1", apiKey: "none", maxRetries: 0 });

async function ask(messages) {
  const request = { model: "default", messages, ...task.options };
  const completion = task.stream
    ? await client.chat.completions.stream(request).finalChatCompletion()
    : await client.chat.completions.create(request);
  return completion.choices[0].message;
}

const messages = [];
const shown = [];
for (const content of task.says) {
  messages.push({ role: "user", content });
  for (;;) {
    const message = await ask(messages);
    messages.push(message);
    const calls = (message.tool_calls ?? []).map(({ id, function: { name, arguments: args } }) => ({
      id,
      name,
      arguments: args,
    }));
    shown.push({ content: message.content ?? "", calls });
    if (!calls.length) break;
    for (const { id, name } of calls)
      messages.push({ role: "tool", tool_call_id: id, content: task.results[name] });
  }
}
console.log(JSON.stringify(shown));
