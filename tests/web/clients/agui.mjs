// A real AG-UI client, @ag-ui/client's HttpAgent, unchanged: it runs what the test says, and tells what it saw.
// Argument: the folder with the packages. One line of JSON in, one out; `url` is the address of the server.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/package.json`);
const { HttpAgent } = await import(pathToFileURL(require.resolve("@ag-ui/client")).href);
const agents = new Map();

async function run({ url, thread, say, props, resume, stopAt, fresh, tools, result }) {
  const key = `${url} ${thread}`;
  if (fresh || !agents.has(key)) agents.set(key, new HttpAgent({ url: `${url}/api/agui`, threadId: thread }));
  const agent = agents.get(key);
  if (say) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: say });
  if (result) agent.addMessage({ id: crypto.randomUUID(), role: "tool", ...result });
  const types = [];
  let outcome = null;
  let problem = null;
  try {
    await agent.runAgent(
      { forwardedProps: props ?? {}, ...(resume ? { resume } : {}), ...(tools ? { tools } : {}) },
      {
        onEvent: ({ event }) => {
          types.push(event.type);
          if (event.type === stopAt) agent.abortRun();
        },
        onRunFinishedEvent: ({ event }) => void (outcome = event.outcome ?? null),
        onRunErrorEvent: ({ event }) => void (problem = event.message),
      },
    );
  } catch (error) {
    problem = String(error?.message ?? error);
  }
  return { types, outcome, problem, messages: agent.messages, interrupts: agent.pendingInterrupts };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line)))}\n`);
}
