// The OpenAI Node SDK, unmodified, at the mount of prentis. Usage: node prentis.mjs BASE_URL KEY MODEL…
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, apiKey, ...models] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

for (const model of models) {
  const ask = { model, prompt: "The capital of France is", max_tokens: 8, temperature: 0 };
  const whole = await client.completions.create(ask);
  assert.equal(whole.model, model);
  let text = "";
  let last = null;
  for await (const chunk of await client.completions.create({ ...ask, stream: true })) {
    text += chunk.choices[0]?.text ?? "";
    last = chunk;
  }
  assert.equal(text, whole.choices[0].text);
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.total_tokens, whole.usage.total_tokens);

  await assert.rejects(client.completions.create({ ...ask, echo: true }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.deepEqual([error.code, error.param, error.type], ["INVALID_REQUEST", "echo", "invalid_request_error"]);
    return true;
  });
}
await assert.rejects(client.completions.create({ model: "nobody", prompt: "x" }), (error) => {
  assert.ok(error instanceof OpenAI.NotFoundError);
  assert.equal(error.code, "MODEL_NOT_FOUND");
  return true;
});
const stranger = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
console.log("ok");
