/** Causes of input tokens: their names, in the order of all charts, and links to their messages. */
import { number } from "../format.js";
import { setQuery } from "../route.js";

/** Cause → label and meaning. Each has a colour and a pattern of its own in composition.css. */
export const CAUSES = {
  system: ["System prompt", "Sent with every request, before everything else."],
  tool: ["Tool definitions", "Names, descriptions and parameters of the tools that the model may call."],
  result: ["Tool results", "Output of tools. It stays in every later request until it is shortened or left out."],
  history: ["History", "Messages of the user and the model, and calls of tools."],
  reasoning: ["Earlier reasoning", "Reasoning of earlier replies that is sent again."],
  media: ["Media", "Images, audio, video and documents."],
  overhead: ["Added by the provider or program", "Counted by the provider, but not in what was recorded. An imported transcript lacks the system prompt and tools of its program."],
  answer: ["Answers", "Output tokens."],
  answer_reasoning: ["Reasoning in answers", "Output tokens that are reasoning."],
  answer_calls: ["Further calls of the provider", "Calls that the provider made beside the answer and bills too: compactions, an advisor, a model that declined."],
};

export const causeLabel = (cause) => CAUSES[cause]?.[0] ?? cause;

/** Return a figure as text. Only exact figures have no sign. @param {string} how origin of the total: exact, measured or estimated */
export const approximate = (how) => (value) => (how === "exact" || value === 0 ? number(value) : `≈ ${number(value)}`);

/** Filters of the Messages tab, all off. */
const NO_FILTER = { cause: "", tool: "", state: "", role: "", error: "", q: "", line: "" };

/** Show the messages of a cause, and of a tool if it has one. */
export function showCause(cause, tool = "") {
  if (cause === "overhead") return;
  if (cause.startsWith("answer")) setQuery({ tab: "reply" });
  else setQuery({ ...NO_FILTER, tab: "messages", cause, tool });
}

/** Show one message. */
export const showLine = (line) => setQuery({ ...NO_FILTER, tab: "messages", line: String(line) });
