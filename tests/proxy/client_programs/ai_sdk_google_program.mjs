// The AI SDK's Google provider, which takes its address in code only. Usage: node PROGRAM FOLDER TASK
// The packages are in FOLDER. It reads files with its tool, and prints the answer.
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , folder, task] = process.argv;
const require = createRequire(join(folder, 'package.json'));
const load = name => import(pathToFileURL(require.resolve(name)));
const [{ generateText, jsonSchema, isStepCount }, { google }] = await Promise.all(['ai', '@ai-sdk/google'].map(load));

globalThis.AI_SDK_LOG_WARNINGS = false;
const read_file = {
  description: 'Read a file.',
  inputSchema: jsonSchema({
    type: 'object', properties: { file_path: { type: 'string' } }, required: ['file_path'], additionalProperties: false,
  }),
  execute: ({ file_path }) => readFile(file_path, 'utf8'),
};
const { text } = await generateText({
  model: google('gemini-3.6-flash'), tools: { read_file }, stopWhen: isStepCount(5), maxRetries: 0, prompt: task,
});
console.log(text);
