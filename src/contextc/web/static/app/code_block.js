/** Highlighted code with a copy button. Invisible characters are shown as code points; a copy keeps them unchanged. */
import { html, useRef, useState } from "./html.js";
import { visible } from "./format.js";
import { startState, copyState, highlight } from "./highlight.js";

/** Characters per slab. When a text grows, only its last slab is highlighted and laid out again. */
const SLAB = 4_000;

/** Highlighted tokens, for inside a <code>. */
function Tokens({ text, language }) {
  const kept = useRef({ text: "", slabs: [] });
  if (kept.current.text !== text || kept.current.language !== language) kept.current = coloured(kept.current, text, language);
  const { slabs } = kept.current;
  return slabs.length === 1 ? slabs[0].pieces : slabs.map((each) => each.shown);
}

/** Highlight a text in slabs of some lines. When the text grows, all slabs but the last are reused as the same objects. */
function coloured(before, text, language) {
  const goesOn = before.language === language && text.startsWith(before.text);
  const slabs = goesOn ? before.slabs.slice(0, -1) : [];
  const place = slabs.length ? copyState(slabs.at(-1).place) : startState(language);
  for (let start = slabs.at(-1)?.end ?? 0; start < text.length; start = slabs.at(-1).end) {
    const newline = text.indexOf("\n", start + SLAB); // a slab ends with a line
    const end = newline < 0 ? text.length : newline;
    const pieces = highlight(text.slice(start, end), place).map(([kind, piece]) => (
      kind ? html`<span class="t-${kind}">${visible(piece)}</span>` : visible(piece)
    ));
    slabs.push({ end: end + 1, place: copyState(place), pieces, shown: html`<div key=${slabs.length}>${pieces}</div>` });
  }
  return { text, language, slabs };
}

/** Button that copies a text, or the text that a function returns. */
export function Copy({ text, label = "Copy", class: className = "" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copyText(typeof text === "function" ? text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 1_600);
  };
  return html`
    <button type="button" class="copy ${className}" onClick=${copy} aria-label=${done ? "Copied" : label}>
      ${done ? "Copied" : "Copy"}
    </button>`;
}

/** Copy a text to the clipboard. Without a secure context, copy through a hidden text field. */
export async function copyText(text) {
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
 * A block of code with its language and a copy button. With `limit`, show only that many characters at first.
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
