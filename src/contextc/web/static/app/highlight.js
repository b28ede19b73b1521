/**
 * Syntax highlighting with CodeMirror's stream modes. A mode reads one line from left to right and leaves a state, so a
 * growing text is read on from its last state. A mode returns a name for each token, never markup.
 *
 * A hostile text could block the browser, because some modes look ahead repeatedly within a line. So very long lines, lines
 * with a wide gap, and text beyond the limit of letters stay plain. The total time is limited in proportion to the length of
 * all texts, far above normal use. A text that exceeds it stays plain from there on.
 */
import * as modes from "code-modes";

const { StringStream } = modes;
const LETTERS = 60_000;
const MOST_MILLISECONDS = 500;
const MILLISECONDS_A_LETTER = 0.01;
const SHARE_OF_TIME = 0.2;
const LONGEST_LINE = 5_000;
const WIDE_GAP = /\s{64}/;
const TAB = 4;
const INDENT = 2;

/** Language names and file extensions, by mode. */
const NAMES = {
  c: "c h", cpp: "cpp c++ cc cxx hpp", csharp: "csharp cs", css: "css scss less", diff: "diff patch",
  dockerFile: "dockerfile docker", go: "go golang", html: "html htm vue", java: "java",
  javascript: "javascript js jsx mjs cjs node", json: "json jsonl json5 jsonc ndjson", kotlin: "kotlin kt",
  python: "python py python3 pycon", ruby: "ruby rb", rust: "rust rs", shell: "bash sh shell zsh console",
  sqlite: "sql sqlite postgres postgresql mysql", toml: "toml ini", typescript: "typescript ts tsx", xml: "xml svg",
  yaml: "yaml yml",
};
const namesOf = ([mode, names]) => names.split(" ").map((name) => [name, modes[mode]]);
const MODES = new Map(Object.entries(NAMES).flatMap(namesOf));

/** Token names of modes → CSS kinds. Tokens with other names are plain. */
const KINDS = new Map(Object.entries({
  comment: "comment", string: "string", "string.special": "string", "string property": "key", number: "number", keyword: "keyword",
  tag: "keyword", angleBracket: "keyword", atom: "constant", self: "constant", "variableName.constant": "constant", def: "name",
  type: "name", qualifier: "name", property: "key", propertyName: "key", attribute: "key", builtin: "call", macroName: "call",
  "variableName.function": "call", meta: "meta", quote: "meta", inserted: "added", deleted: "removed",
}));
const YAML = new Map([["atom", "key"], ["keyword", "constant"]]);

/** Return the mode of a language, by the name in a code fence; undefined if there is none. */
const modeOf = (language) => MODES.get(String(language ?? "").toLowerCase().split(/[\s,{]/)[0]);

/** The remaining time budget, and when highlighting ended last. The length of each text and elapsed time add to the budget. */
let [milliseconds, ended] = [MOST_MILLISECONDS, 0];

/** Return the start state for `highlight`: the state of the mode, and how many letters to highlight. */
export function startState(language) {
  const mode = modeOf(language);
  return { mode, state: mode?.startState?.(INDENT) ?? {}, letters: mode ? LETTERS : 0 };
}

/** Return an independent copy of a state. */
export function copyState(place) {
  const { mode, state } = place;
  const arrays = Object.entries(state).map(([name, value]) => [name, Array.isArray(value) ? value.slice() : value]);
  return { ...place, state: mode?.copyState ? mode.copyState(state) : Object.fromEntries(arrays) };
}

/**
 * Highlight lines from a state, which advances to their end.
 * @returns {[string, string][]} kinds and texts; the joined texts equal the input, and kind "" is plain
 */
export function highlight(lines, place) {
  const found = [];
  const add = (kind, text) => {
    if (found.at(-1)?.[0] === kind) found.at(-1)[1] += text;
    else found.push([kind, text]);
  };
  const began = performance.now();
  const earned = lines.length * MILLISECONDS_A_LETTER + (began - ended) * SHARE_OF_TIME;
  milliseconds = Math.min(milliseconds + earned, MOST_MILLISECONDS);
  const until = began + milliseconds;
  lines.split("\n").forEach((line, index) => {
    if (index) add("", "\n");
    place.letters -= line.length + 1;
    const isPlain = place.letters < 0 || line.length > LONGEST_LINE || WIDE_GAP.test(line);
    const end = isPlain ? 0 : readLine(line, place, add, until);
    if (end < line.length) add("", line.slice(end));
  });
  ended = performance.now();
  milliseconds -= ended - began;
  return found;
}

/** @returns {number} how far the line was read: less than its length if the time is up or the mode fails */
function readLine(line, place, add, until) {
  const { mode, state } = place;
  const stream = new StringStream(line, TAB, INDENT);
  try {
    if (!line) mode.blankLine?.(state, INDENT);
    while (!stream.eol() && performance.now() < until) {
      stream.start = stream.pos;
      let style = null;
      for (let tries = 0; stream.pos <= stream.start && tries < 10; tries += 1) style = mode.token(stream, state);
      stream.pos = Math.max(stream.pos, stream.start + 1);
      add(kindOf(style, stream, mode), stream.current());
    }
    return stream.pos;
  } catch {
    place.letters = 0;
    return stream.start;
  }
}

function kindOf(style, stream, mode) {
  if ((style === "variable" || style === "property") && stream.peek() === "(") return "call";
  return (mode === modes.yaml && YAML.get(style)) || (KINDS.get(style) ?? "");
}
