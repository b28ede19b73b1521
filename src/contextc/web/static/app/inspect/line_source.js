/**
 * Where a list of lines comes from: the server, or an opened file. Both select lines and load some of them.
 *
 * @typedef {{state?: string, role?: string, tool?: string, cause?: string, error?: boolean, sort?: string, search?: string}} Filter
 * @typedef {object} Selection
 * @property {number[]} indexes the selected lines @property {number} total all lines
 * @property {number} head lines of the system prompt and the tools @property {number|null} prefix_end first line behind the shared prefix
 * @property {number} tokens of the selected lines @property {number} input tokens of the whole request
 * @property {Record<string, number>} states lines per value, among those that match the rest of the filter
 * @property {Record<string, number>} roles @property {Record<string, number>} tools @property {Record<string, number>} causes
 * @property {number} errors
 * @typedef {object} LineSource
 * @property {(filter: Filter, signal: AbortSignal) => Promise<Selection>} select
 * @property {(indexes: number[], signal: AbortSignal) => Promise<object[]>} lines
 * @property {(index: number, signal: AbortSignal) => Promise<object>} detail one line with its parts
 */

/** Characters of a collapsed line. The full text is fetched when a line is expanded. */
const WIDTH = 400;

/** @param {(query: object, signal: AbortSignal) => Promise<object>} from asks the server for lines @returns {LineSource} */
export const serverLines = (from) => ({
  select: async (filter, signal) => {
    const { selection } = await from({ ...filter, detailed: true, selection: true, limit: 1, width: 1 }, signal);
    const { total, head } = selection;
    return { ...selection, indexes: selection.indexes ?? Array.from({ length: total }, (_, place) => place - head) };
  },
  lines: async (indexes, signal) => (await from({ at: ranges(indexes), detailed: true, width: WIDTH }, signal)).lines,
  detail: async (index, signal) => (await from({ at: `${index}`, detailed: true, parts: true }, signal)).lines[0],
});

/** Return indexes as text: `-2..10,15`. */
function ranges(indexes) {
  const pieces = [];
  for (let at = 0, start = 0; at < indexes.length; at += 1) {
    if (indexes[at + 1] === indexes[at] + 1) continue;
    pieces.push(start === at ? `${indexes[at]}` : `${indexes[start]}..${indexes[at]}`);
    start = at + 1;
  }
  return pieces.join(",");
}

/** Lines that are all here already. @param {object[]} lines @param {number} input tokens of the request @returns {LineSource} */
export const openedLines = (lines, input) => ({
  select: async (filter) => select(lines, filter, input),
  lines: async (indexes) => indexes.map((index) => lines[index]),
  detail: async (index) => lines[index],
});

const FIELDS = ["state", "role", "tool", "cause", "error"];

/** Return the values of a line for each field of a filter. */
function valuesOf(line) {
  const results = line.results ?? [];
  const tools = [line.tool, ...(line.calls ?? []).map((each) => each.name), ...results.map((each) => each.name)];
  return [
    [line.state], [line.role], [...new Set(tools.filter(Boolean))], line.causes ?? [],
    results.some((each) => each.status !== "ok") ? [true] : [],
  ];
}

function select(lines, filter, input) {
  const counts = FIELDS.map(() => ({}));
  const words = filter.search?.toLowerCase() ?? "";
  const chosen = lines.filter((line) => {
    const values = valuesOf(line);
    const missed = FIELDS.map((_, place) => place).filter((place) => filter[FIELDS[place]] && !values[place].includes(filter[FIELDS[place]]));
    if (missed.length > 1 || (words && !searched(line).includes(words))) return false;
    for (const place of missed.length ? missed : FIELDS.keys()) {
      for (const value of values[place]) counts[place][value] = (counts[place][value] ?? 0) + 1;
    }
    return !missed.length;
  });
  if (filter.sort === "size") chosen.sort((one, other) => other.tokens - one.tokens || one.index - other.index);
  const [states, roles, tools, causes, errors] = counts;
  return {
    indexes: chosen.map((line) => line.index), total: lines.length, head: 0, prefix_end: null, input, states, roles, tools, causes,
    tokens: chosen.reduce((sum, line) => sum + line.tokens, 0), errors: errors.true ?? 0,
  };
}

function searched(line) {
  const calls = (line.calls ?? []).map((each) => each.text);
  const reasoning = (line.parts ?? []).filter((each) => each.type === "reasoning").map((each) => each.text ?? "");
  return [line.text, ...calls, ...reasoning, line.definition ? JSON.stringify(line.definition) : ""].join("\n").toLowerCase();
}
