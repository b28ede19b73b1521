// The real AI SDK, asked what it would send. One JSON request a line on stdin, one JSON answer a line on stdout:
//
//   {"format": "anthropic", "model": "…", "options": {"messages": […], "instructions": "…", "tools": {…}, …}}
//   {"body": {…}, "text": "Fine."}            or, where the SDK refuses,  {"error": "AI_…", "message": "…"}
//
// `options` are those of generateText; `"stream": true` calls streamText. Nothing leaves the process: `fetch` keeps
// the body and answers from memory. The packages are not beside this file but in the folder that is its argument.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(join(process.argv[2], 'package.json'));
const load = name => import(pathToFileURL(require.resolve(name)));
const [{ generateText, streamText, jsonSchema }, { createAnthropic }, { createOpenAI }, { createGoogle },
  { createAmazonBedrock }, { createMistral }] = await Promise.all(
  ['ai', '@ai-sdk/anthropic', '@ai-sdk/openai', '@ai-sdk/google', '@ai-sdk/amazon-bedrock', '@ai-sdk/mistral'].map(load));

globalThis.AI_SDK_LOG_WARNINGS = false;
globalThis.fetch = () => { throw new Error('the oracle has no network'); };

const SAID = 'Fine.';
const chat = { id: 'r', created: 0, model: 'm', object: 'chat.completion', usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: SAID } }] };
const REPLIES = {
  anthropic: { type: 'message', id: 'r', role: 'assistant', model: 'm', content: [{ type: 'text', text: SAID }],
    stop_reason: 'end_turn', stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } },
  openai_chat: chat,
  mistral: chat,
  openai_responses: { id: 'r', created_at: 0, model: 'm', object: 'response', status: 'completed', error: null, incomplete_details: null,
    output: [{ type: 'message', id: 'msg_r', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: SAID, annotations: [] }] }],
    usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 } },
  gemini: { candidates: [{ content: { role: 'model', parts: [{ text: SAID }] }, finishReason: 'STOP' }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 } },
  bedrock: { output: { message: { role: 'assistant', content: [{ text: SAID }] } }, stopReason: 'end_turn', metrics: { latencyMs: 1 },
    usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 } },
};
const MODELS = {
  anthropic: (model, settings) => createAnthropic(settings)(model),
  openai_chat: (model, settings) => createOpenAI(settings).chat(model),
  openai_responses: (model, settings) => createOpenAI(settings).responses(model),
  gemini: (model, settings) => createGoogle(settings)(model),
  bedrock: (model, settings) => createAmazonBedrock({ ...settings, region: 'nowhere-1' })(model),
  mistral: (model, settings) => createMistral(settings)(model),
};

async function asked({ format, model, options, stream = false }) {
  let body;
  const fetch = async (_, request) => {
    body = JSON.parse(request.body);
    if (stream) return new Response('', { headers: { 'content-type': 'text/event-stream' } });
    return new Response(JSON.stringify(REPLIES[format]), { headers: { 'content-type': 'application/json' } });
  };
  const tools = Object.fromEntries(
    Object.entries(options.tools ?? {}).map(([name, tool]) => [name, { ...tool, inputSchema: jsonSchema(tool.inputSchema) }]));
  const given = { ...options, model: MODELS[format](model, { apiKey: 'none', fetch }), maxRetries: 0,
    ...(options.tools ? { tools } : {}),
    experimental_download: async files => files.map(() => null) };  // a link stays a link
  try {
    if (!stream) return { text: (await generateText(given)).text, body };
    await streamText({ ...given, onError: () => {} }).consumeStream();
    return { body };
  } catch (error) {
    if (error.name === 'AI_ToolChoiceViolationError') return { text: SAID, body };  // no answer of ours calls a tool
    return { error: error.name, message: error.message };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await asked(JSON.parse(line))) + '\n');
}
