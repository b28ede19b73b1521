// The AI SDK with a tool, then a stream. Usage: node PROGRAM FOLDER anthropic|openai_chat|openai_responses|gemini|bedrock
// The packages are in FOLDER. Addresses come from the environment; Google's and Amazon's providers take it in code only.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , folder, kind] = process.argv;
const require = createRequire(join(folder, 'package.json'));
const load = name => import(pathToFileURL(require.resolve(name)));
const [{ generateText, streamText, jsonSchema, stepCountIs, isStepCount }, { anthropic }, { openai }, google, bedrock] = await Promise.all(
  ['ai', '@ai-sdk/anthropic', '@ai-sdk/openai', '@ai-sdk/google', '@ai-sdk/amazon-bedrock'].map(load));
const create = google.createGoogle ?? google.createGoogleGenerativeAI;

globalThis.AI_SDK_LOG_WARNINGS = false;
const MODELS = {
  anthropic: () => anthropic('claude-sonnet-4-5'),
  openai_chat: () => openai.chat('gpt-4.1'),
  openai_responses: () => openai.responses('gpt-5.4'),
  gemini: () => create({ baseURL: `${process.env.GOOGLE_GEMINI_BASE_URL}/v1beta` })('gemini-2.5-flash'),
  bedrock: () => bedrock.createAmazonBedrock({ baseURL: process.env.AWS_ENDPOINT_URL_BEDROCK_RUNTIME, region: 'us-east-1' })(
    'us.anthropic.claude-sonnet-4-5-20250929-v1:0'),
};
const look = {
  description: 'Look at a thing.',
  inputSchema: jsonSchema({ type: 'object', properties: { thing: { type: 'string' } }, required: ['thing'], additionalProperties: false }),
  execute: async ({ thing }) => `${thing} is red`,
};
const given = { model: MODELS[kind](), tools: { look }, stopWhen: (isStepCount ?? stepCountIs)(5), maxRetries: 0 };
const messages = [{ role: 'user', content: 'Look at the door. #call' }];
const first = await generateText({ ...given, messages });
messages.push(...(first.responseMessages ?? first.response.messages), { role: 'user', content: 'Thank you.' });
let streamed = '';
for await (const part of streamText({ ...given, messages }).textStream) streamed += part;
console.log(JSON.stringify([first.text, streamed]));
