/**
 * Colours for code, by CodeMirror's stream modes: a mode reads one line from left to right and leaves a state behind, so a
 * text that grows is read on from where it was. A mode returns a name for each token and never markup.
 *
 * The text may be written to make a page stand still, and some modes look ahead in a line again and again. So a line that
 * is too long or has too wide a gap is plain, and so is what comes after the limit of letters. The time for all texts of the
 * page is limited by their length, to far more than it takes: a text that takes even more is plain from there on.
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

/** Names of languages and endings of files, by the mode that reads them. */
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

/** What a mode calls a token, as the page colours it. Other names are plain. */
const KINDS = new Map(Object.entries({
  comment: "comment", string: "string", "string.special": "string", "string property": "key", number: "number", keyword: "keyword",
  tag: "keyword", angleBracket: "keyword", atom: "constant", self: "constant", "variableName.constant": "constant", def: "name",
  type: "name", qualifier: "name", property: "key", propertyName: "key", attribute: "key", builtin: "call", macroName: "call",
  "variableName.function": "call", meta: "meta", quote: "meta", inserted: "added", deleted: "removed",
}));
const YAML = new Map([["atom", "key"], ["keyword", "constant"]]);

/** The mode of a language by the name that a fence gives, if there is one. */
const modeOf = (language) => MODES.get(String(language ?? "").toLowerCase().split(/[\s,{]/)[0]);

/** How long may be read now, and when reading ended last. Each text adds to it by its length, and so does time that passes. */
let [milliseconds, ended] = [MOST_MILLISECONDS, 0];

/** Where a text begins, for `read`: the state of its mode, and how many letters have colours. */
export function beginning(language) {
  const mode = modeOf(language);
  return { mode, state: mode?.startState?.(INDENT) ?? {}, letters: mode ? LETTERS : 0 };
}

/** The same place again, which reading on from the other does not change. */
export function copyOf(place) {
  const { mode, state } = place;
  const arrays = Object.entries(state).map(([name, value]) => [name, Array.isArray(value) ? value.slice() : value]);
  return { ...place, state: mode?.copyState ? mode.copyState(state) : Object.fromEntries(arrays) };
}

/**
 * Lines from a place on, which moves to their end.
 * @returns {[string, string][]} kinds and texts; joined, the texts are the lines again, and kind "" is plain
 */
export function read(lines, place) {
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

/** @returns {number} how far the line was read; less than all of it where time is up or its mode fails */
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
