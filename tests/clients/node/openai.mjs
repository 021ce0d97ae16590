// The OpenAI Node SDK, unmodified. Usage: node openai.mjs BASE_URL MODEL. Exits non-zero when a check fails.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Say hello." }];

const whole = await client.completions.create({ model, prompt: "The capital of France is", max_tokens: 8, temperature: 0 });
assert.match(whole.choices[0].text, /Paris/);

let text = "";
let usage = null;
const stream = await client.completions.create({
  model,
  prompt: "The capital of France is",
  max_tokens: 8,
  temperature: 0,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  text += chunk.choices[0]?.text ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].text);
assert.deepEqual(usage.total_tokens, whole.usage.total_tokens);

const chat = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 40 });
let content = "";
for await (const chunk of await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 40, stream: true })) {
  content += chunk.choices[0].delta.content ?? "";
}
assert.equal(content, chat.choices[0].message.content);

const final = await client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 40 }).finalChatCompletion();
assert.equal(final.choices[0].message.content, content);

await assert.rejects(client.completions.create({ model: "nobody/nothing", prompt: "x" }), (error) => {
  assert.ok(error instanceof OpenAI.NotFoundError);
  assert.equal(error.code, "model_not_found");
  return true;
});
await assert.rejects(client.completions.create({ model, prompt: "x", temperature: 9 }), OpenAI.BadRequestError);
const listed = await client.models.list();
assert.ok(listed.data.some((entry) => entry.id === model));
assert.equal((await client.models.retrieve(model)).id, model);
console.log("ok");
