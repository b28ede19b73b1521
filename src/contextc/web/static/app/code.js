/**
 * Code in colours: a small tokenizer for what is mostly written here, and plain text for everything else.
 *
 * `tokenize` gives pieces of `[kind, text]` that, joined, are the text again; `Code` shows them. No grammar is complete,
 * and none has to be: a wrong colour does no harm. What cannot be seen in code is spelled out; a copy has it as it was.
 */
import { html, useMemo, useState } from "./html.js";
import { visible } from "./format.js";

const LARGEST = 60_000;
const DOUBLE = String.raw`"(?:\\[\s\S]|[^"\\\n])*"?`;
const SINGLE = String.raw`'(?:\\[\s\S]|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\b`;
const words = (list) => String.raw`\b(?:${list.trim().split(/\s+/).join("|")})\b`;

/** A language is a list of [kind, pattern]; the first that fits at a place wins. */
const LANGUAGES = {
  python: [
    ["comment", String.raw`#[^\n]*`],
    ["string", String.raw`[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))`],
    ["string", String.raw`[rbfuRBFU]{0,2}(?:${DOUBLE}|${SINGLE})`],
    ["meta", String.raw`@[\w.]+`],
    ["keyword", words(`and as assert async await break case class continue def del elif else except finally for from global
      if import in is lambda match nonlocal not or pass raise return try while with yield`)],
    ["constant", words("True False None self cls")],
    ["name", String.raw`(?<=\b(?:def|class)\s+)\w+`],
    ["call", String.raw`\b\w+(?=\()`],
    ["number", NUMBER],
  ],
  javascript: [
    ["comment", String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`],
    ["string", String.raw`\`(?:\\[\s\S]|[^\`\\])*\`?|${DOUBLE}|${SINGLE}`],
    ["string", String.raw`(?<=[=(,:\[!&|?{};\n]\s*)\/(?![*/\s])(?:\\.|\[(?:\\.|[^\]\n])*\]|[^/\\\n])+\/[dgimsuvy]*`],
    ["keyword", words(`abstract as async await break case catch class const continue debugger declare default delete do else
      enum export extends finally for from function get if implements import in instanceof interface keyof let new of
      private protected public readonly return satisfies set static super switch this throw try type typeof var void while
      yield`)],
    ["constant", words("true false null undefined NaN Infinity")],
    ["call", String.raw`\b[\w$]+(?=\()`],
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
    ["call", String.raw`(?<=^\s*|[|;&]\s*|\$\(\s*)[\w./-]+(?=\s|$)`],
    ["constant", String.raw`(?<=\s)--?[\w-]+`],
    ["number", NUMBER],
  ],
  html: [
    ["comment", String.raw`<!--[\s\S]*?(?:-->|$)`],
    ["keyword", String.raw`<\/?[\w:-]+|\/?>|<![\w]+`],
    ["key", String.raw`\b[\w:@-]+(?==)`],
    ["string", String.raw`(?<==)(?:"[^"]*"?|'[^']*'?)`],
    ["constant", String.raw`&[\w#]+;`],
  ],
  css: [
    ["comment", String.raw`\/\*[\s\S]*?(?:\*\/|$)`],
    ["string", `${DOUBLE}|${SINGLE}`],
    ["meta", String.raw`@[\w-]+|--[\w-]+`],
    ["constant", String.raw`#[\da-fA-F]{3,8}\b`],
    ["key", String.raw`[\w-]+(?=\s*:[^:])`],
    ["number", String.raw`-?\b\d+(?:\.\d+)?(?:%|[a-z]+\b)?`],
    ["call", String.raw`[\w-]+(?=\()`],
    ["keyword", String.raw`[.#&]?[\w-]+(?=[^{};]*\{)`],
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
    ["keyword", String.raw`^\s*\[{1,2}[^\]\n]*\]{1,2}`],
    ["key", String.raw`^\s*[\w."-]+(?=\s*=)`],
    ["string", String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|${DOUBLE}|'[^'\n]*'?`],
    ["constant", words("true false")],
    ["number", NUMBER],
  ],
  yaml: [
    ["comment", String.raw`(?<=^|\s)#[^\n]*`],
    ["key", String.raw`^\s*(?:- +)*[\w."'/-]+(?=\s*:(?:\s|$))`],
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
export function tokenize(text, language) {
  const found = languageOf(language);
  if (!found || text.length > LARGEST) return [["", text]];
  if (!compiled.has(found)) {
    const rules = LANGUAGES[found];
    compiled.set(found, {
      kinds: rules.map(([kind]) => kind),
      pattern: new RegExp(rules.map(([, pattern]) => `(${pattern})`).join("|"), FLAGS[found] ?? "gm"),
    });
  }
  const { kinds, pattern } = compiled.get(found);
  const pieces = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (!match[0]) continue;
    if (match.index > at) pieces.push(["", text.slice(at, match.index)]);
    pieces.push([kinds[match.slice(1).findIndex((each) => each !== undefined)], match[0]]);
    at = match.index + match[0].length;
  }
  if (at < text.length) pieces.push(["", text.slice(at)]);
  return pieces;
}

/** Coloured pieces, for inside a <code>. */
export function Tokens({ text, language }) {
  return useMemo(
    () => tokenize(text, language).map(([kind, piece]) => (kind ? html`<span class="t-${kind}">${visible(piece)}</span>` : visible(piece))),
    [text, language],
  );
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
