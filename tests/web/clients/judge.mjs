// What the clients' own libraries say to a stream: AG-UI's verifier, and the AI SDK's schema and reader.
// One line of JSON in, one out. The folder with the packages is the first argument.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { verifyEvents } = await load("@ag-ui/client");
const { from } = await load("rxjs");
const { readUIMessageStream, uiMessageChunkSchema } = await load("ai");

const judges = {
  agui: ({ events }) =>
    new Promise((resolve, reject) => {
      let count = 0;
      from(events).pipe(verifyEvents()).subscribe({
        next: () => (count += 1),
        error: reject,
        complete: () => resolve({ count }),
      });
    }),
  vercel: async ({ chunks }) => {
    const schema = await uiMessageChunkSchema();
    for (const chunk of chunks) {
      const checked = await schema.validate(chunk);
      if (!checked.success) throw checked.error;
    }
    const stream = new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    });
    const errors = [];
    let message = null;
    const read = readUIMessageStream({ stream, onError: (error) => errors.push(String(error.message)) });
    for await (const each of read) message = each;
    return { message, errors };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let answer;
  try {
    answer = await judges[asked.kind](asked);
  } catch (error) {
    answer = { error: String(error?.message ?? error).slice(0, 1000) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
