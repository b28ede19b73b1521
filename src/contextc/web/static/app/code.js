/**
 * Code in colours: a small tokenizer for what is mostly written here, and plain text for everything else.
 *
 * `tokenize` gives pieces of `[kind, text]` that, joined, are the text again; `Code` shows them. No grammar is complete,
 * and none has to be: a wrong colour does no harm. What cannot be seen in code is spelled out; a copy has it as it was.
 *
 * Who wrote the text may want the page to stand still, so the time is linear in its length. A pattern keeps to that if it
 * takes what it has looked at, or begins where nothing else does: at a line, at a word, at a letter before it looks back.
 */
import { html, useRef, useState } from "./html.js";
import { visible } from "./format.js";

/** Up to here a text has colours; what comes after is plain. */
const LARGEST = 60_000;
/** Of a text that goes on, so much is coloured and laid out again. */
const SLAB = 4_000;
const DOUBLE = String.raw`"(?:\\[\s\S]|[^"\\\n])*"?`;
const SINGLE = String.raw`'(?:\\[\s\S]|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\b`;
const words = (list) => String.raw`\b(?:${list.trim().split(/\s+/).join("|")})\b`;

/** A regular expression of JavaScript: where it ends cannot be seen without reading a line, hence only so many letters. */
const LITERAL = /^\/(?![*/\s])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[dgimsuvy]*/;
const LONGEST_LITERAL = 400;
const BRACE = /[{};]/g;

/** Where the regular expression ends that begins at a slash; there, if it is none. */
const endOfLiteral = (text, at) => at + (LITERAL.exec(text.slice(at, at + LONGEST_LITERAL))?.[0].length ?? 0);

/** Where a word of a selector ends, which is one that a block follows; where it began, if it is none. */
function endOfSelector(text, at, end, kept) {
  if (!(kept.brace >= end)) {
    BRACE.lastIndex = end;
    kept.brace = BRACE.exec(text)?.index ?? text.length;
  }
  return text[kept.brace] === "{" ? end : at;
}

/** A language is a list of [kind, pattern, end]; the first that fits at a place wins, if it has an end there. */
const LANGUAGES = {
  python: [
    ["comment", String.raw`#[^\n]*`],
    ["string", String.raw`[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))`],
    ["string", String.raw`[rbfuRBFU]{0,2}(?:${DOUBLE}|${SINGLE})`],
    ["meta", String.raw`@[\w.]+`],
    ["keyword", words(`and as assert async await break case class continue def del elif else except finally for from global
      if import in is lambda match nonlocal not or pass raise return try while with yield`)],
    ["constant", words("True False None self cls")],
    ["name", String.raw`\b(?=\w)(?<=\b(?:def|class)\s+)\w+`],
    ["call", String.raw`\b\w+(?=\()`],
    ["number", NUMBER],
  ],
  javascript: [
    ["comment", String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`],
    ["string", String.raw`\`(?:\\[\s\S]|[^\`\\])*\`?|${DOUBLE}|${SINGLE}`],
    ["string", String.raw`(?=\/)(?<=[=(,:\[!&|?{};\n]\s*)\/`, endOfLiteral],
    ["keyword", words(`abstract as async await break case catch class const continue debugger declare default delete do else
      enum export extends finally for from function get if implements import in instanceof interface keyof let new of
      private protected public readonly return satisfies set static super switch this throw try type typeof var void while
      yield`)],
    ["constant", words("true false null undefined NaN Infinity")],
    ["call", String.raw`\b(?=\w)(?<=(?<![\w$])\${0,2})[\w$]+(?=\()`],
    ["number", NUMBER],
  ],
  json: [
    ["key", String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)`],
    ["string", DOUBLE],
    ["constant", words("true false null")],
    ["number", String.raw`-?${NUMBER}`],
  ],
  bash: [
    ["comment", String.raw`(?<=^|\s)#[^\n]*`],
    ["string", String.raw`"(?:\\[\s\S]|[^"\\])*"?|'[^']*'?`],
    ["meta", String.raw`\$(?:\{[^}\n]*\}?|[\w@#?*!-]+)`],
    ["keyword", words("if then else elif fi for while until do done case esac in function select return export local set unset")],
    ["call", String.raw`(?=[\w./-])(?<=^\s*|[|;&]\s*|\$\(\s*)[\w./-]+(?=\s|$)`],
    ["constant", String.raw`(?<=\s)--?[\w-]+`],
    ["number", NUMBER],
  ],
  html: [
    ["comment", String.raw`<!--[\s\S]*?(?:-->|$)`],
    ["keyword", String.raw`<\/?[\w:-]+|\/?>|<![\w]+`],
    ["key", String.raw`\b(?=\w)(?<=(?<![\w:@-])[:@-]{0,2})[\w:@-]+(?==)`],
    ["string", String.raw`(?<==)(?:"[^"]*"?|'[^']*'?)`],
    ["constant", String.raw`&[\w#]+;`],
  ],
  css: [
    ["comment", String.raw`\/\*[\s\S]*?(?:\*\/|$)`],
    ["string", `${DOUBLE}|${SINGLE}`],
    ["meta", String.raw`@[\w-]+|--[\w-]+`],
    ["constant", String.raw`#[\da-fA-F]{3,8}(?![\w-])`],
    ["key", String.raw`(?<![\w-])[\w-]+(?=\s*:[^:])`],
    ["number", String.raw`-?\b\d+(?:\.\d+)?(?:%|[a-z]+\b)?`],
    ["call", String.raw`(?<![\w-])[\w-]+(?=\()`],
    ["keyword", String.raw`(?:[.#&]|(?<![\w-]))[\w-]+`, endOfSelector],
  ],
  sql: [
    ["comment", String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`],
    ["string", String.raw`'(?:''|[^'])*'?|"[^"]*"?`],
    ["keyword", words(`add all alter and as asc begin between by case check column commit constraint create cross default delete
      desc distinct drop else end except exists foreign from full group having in index inner insert intersect into is join key
      left like limit not offset on or order outer primary references returning right rollback select set table then
      transaction union unique update using values view when where with`)],
    ["constant", words("null true false")],
    ["call", String.raw`\b\w+(?=\()`],
    ["number", NUMBER],
  ],
  toml: [
    ["comment", String.raw`#[^\n]*`],
    ["keyword", String.raw`^[ \t]*\[{1,2}[^\]\n\r\u2028\u2029]*\]{1,2}`],
    ["key", String.raw`^[ \t]*[\w."-]+(?=[ \t]*=)`],
    ["string", String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|${DOUBLE}|'[^'\n]*'?`],
    ["constant", words("true false")],
    ["number", NUMBER],
  ],
  yaml: [
    ["comment", String.raw`(?<=^|\s)#[^\n]*`],
    ["key", String.raw`^[ \t]*(?:- +)*[\w."'/-]+(?=[ \t]*:(?:\s|$))`],
    ["string", `${DOUBLE}|${SINGLE}`],
    ["meta", String.raw`[&*!][\w-]+|^---`],
    ["constant", words("true false null yes no")],
    ["number", NUMBER],
  ],
  diff: [
    ["meta", String.raw`^(?:@@|@|diff |index |--- |\+\+\+ |\()[^\n]*`],
    ["added", String.raw`^\+[^\n]*`],
    ["removed", String.raw`^-[^\n]*`],
  ],
};
const FLAGS = { sql: "gmi", html: "gmi" };
const ALSO = {
  py: "python", python3: "python", pycon: "python", js: "javascript", jsx: "javascript", mjs: "javascript", ts: "javascript",
  tsx: "javascript", typescript: "javascript", node: "javascript", jsonl: "json", json5: "json", jsonc: "json", ndjson: "json",
  sh: "bash", shell: "bash", zsh: "bash", console: "bash", xml: "html", svg: "html", vue: "html", scss: "css", less: "css",
  postgres: "sql", postgresql: "sql", sqlite: "sql", mysql: "sql", patch: "diff", yml: "yaml", ini: "toml",
};
const compiled = new Map();

/** The language that a fence means, or "". */
export function languageOf(named) {
  const name = String(named ?? "").toLowerCase().split(/[\s,{]/)[0];
  const found = Object.hasOwn(ALSO, name) ? ALSO[name] : name;
  return Object.hasOwn(LANGUAGES, found) ? found : "";
}

/** The language of a file, by its name. */
export const languageOfFile = (path) => languageOf(/\.(\w+)$/.exec(String(path ?? ""))?.[1]);

/** @returns {[string, string][]} pieces of a text; kind "" is plain */
export const tokenize = (text, language) => [...tokens(text, language)];

function* tokens(text, language, from = 0) {
  const found = languageOf(language);
  let at = from;
  if (found) {
    const kept = {};
    for (let match = next(found, text, at); match; match = next(found, text, match.next)) {
      const [kind, , endOf] = LANGUAGES[found][match.findIndex((each, group) => group > 0 && each !== undefined) - 1];
      const end = endOf ? endOf(text, match.index, match.next, kept) : match.next;
      match.next = Math.max(end, match.index + 1);
      if (end === match.index) continue;
      if (match.index > at) yield ["", text.slice(at, match.index)];
      yield [kind, text.slice(match.index, end)];
      at = end;
    }
  }
  if (at < text.length) yield ["", text.slice(at)];
}

/** What a language finds from a place on, with where it ends. */
function next(language, text, at) {
  if (at >= LARGEST) return null;
  if (!compiled.has(language)) {
    const rules = LANGUAGES[language].map(([, pattern]) => `(${pattern})`);
    compiled.set(language, new RegExp(rules.join("|"), FLAGS[language] ?? "gm"));
  }
  const pattern = compiled.get(language);
  pattern.lastIndex = at;
  const match = pattern.exec(text);
  return match && Object.assign(match, { next: pattern.lastIndex });
}

/** Coloured pieces, for inside a <code>. */
export function Tokens({ text, language }) {
  const kept = useRef({ text: "", slabs: [] });
  if (kept.current.text !== text || kept.current.language !== language) kept.current = coloured(kept.current, text, language);
  const { slabs } = kept.current;
  return slabs.length === 1 ? slabs[0].pieces : slabs.map((each) => each.shown);
}

/** Some lines at a time; of a text that goes on, all slabs but the last are taken over, and the page need not look at them. */
export function coloured(before, text, language) {
  const goesOn = before.language === language && text.startsWith(before.text);
  const slabs = goesOn ? before.slabs.slice(0, -1) : [];
  let start = slabs.at(-1)?.end ?? 0;
  let [at, pieces] = [start, []];
  const close = () => {
    slabs.push({ end: at, pieces, shown: html`<div key=${slabs.length}>${pieces}</div>` });
    [start, pieces] = [at, []];
  };
  for (const [kind, piece] of tokens(text, language, start)) {
    const end = at + piece.length;
    for (let cut = kind ? -1 : lineEnd(text, start, at, end); cut >= 0; cut = lineEnd(text, start, at, end)) {
      pieces.push(visible(text.slice(at, cut))); // the end of the line is that of the slab
      at = cut + 1;
      close();
    }
    if (at < end) pieces.push(kind ? html`<span class="t-${kind}">${visible(piece)}</span>` : visible(text.slice(at, end)));
    at = end;
  }
  if (pieces.length) close();
  return { text, language, slabs };
}

/** Where, between two places, a slab may end that began at `start`. */
function lineEnd(text, start, at, end) {
  const from = Math.max(at, start + SLAB);
  const found = text.slice(from, end).indexOf("\n");
  return found < 0 ? -1 : from + found;
}

/** A button that copies a text. */
export function Copy({ text, label = "Copy", class: className = "" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copied(typeof text === "function" ? text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 1_600);
  };
  return html`
    <button type="button" class="copy ${className}" onClick=${copy} aria-label=${done ? "Copied" : label}>
      ${done ? "Copied" : "Copy"}
    </button>`;
}

/** Copy, also where the page has no secure context: over a text field then. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "off-screen";
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

/**
 * A block of code with its language and a copy button. With `limit`, only so many characters until all is asked for.
 * @param {{text: string, language?: string, title?: string, limit?: number, bare?: boolean}} props
 */
export function Code({ text, language = "", title, limit = 0, bare = false }) {
  const [all, setAll] = useState(false);
  const cut = limit > 0 && !all && text.length > limit * 1.2;
  const shown = cut ? text.slice(0, limit) : text;
  return html`
    <figure class="code ${bare ? "bare" : ""}">
      ${!bare && html`<figcaption><span>${visible(title ?? language)}</span><${Copy} text=${text} label="Copy code" /></figcaption>`}
      <pre tabindex="0" aria-label=${title || (language ? `${visible(language)} code` : "Code")} role="group"><code dir="ltr"><${Tokens}
        text=${shown} language=${language} /></code></pre>
      ${cut && html`
        <button type="button" class="more" onClick=${() => setAll(true)}>
          Show all ${text.length.toLocaleString("en-GB")} characters
        </button>`}
    </figure>`;
}
