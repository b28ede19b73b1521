/** Context that clients put into user messages, before and after the text of the user: it is collapsed. */
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { number, readable } from "../format.js";
import { useHasHit, useOpen } from "./search_hit.js";

/** Tags of blocks that clients add, and the beginning of a line before one. messages/client_context.py has the same. */
export const TAGS = [
  "system-reminder", "local-command-caveat", "ide_opened_file", "ide_selection",
  "environment_context", "user_instructions", "skills_instructions", "permissions instructions",
  "turn_aborted", "INSTRUCTIONS",
  "environment_details",
];
const HEADINGS = ["# AGENTS.md instructions"];

const afterSpace = (text, at) => text.length - text.slice(at).trimStart().length;

/** Return the end of the block that begins at a position; the position itself if there is none. */
function blockEnd(text, start) {
  let at = afterSpace(text, start);
  const lineEnd = HEADINGS.some((each) => text.startsWith(each, at)) ? text.indexOf("\n", at) : -1;
  if (lineEnd >= 0) at = afterSpace(text, lineEnd);
  const tag = TAGS.find((each) => text.startsWith(`<${each}>`, at));
  const found = tag ? text.indexOf(`</${tag}>`, at) : -1;
  return found < 0 ? start : found + tag.length + 3;
}

/** Return the start of the block that ends a text; its length if there is none. */
function blockStart(text) {
  const written = text.trimEnd();
  const tag = TAGS.find((each) => written.endsWith(`</${each}>`));
  const found = tag ? written.lastIndexOf(`<${tag}>`) : -1;
  return found < 0 ? text.length : found;
}

/** Split the text of a user message into the user's own text, and the blocks before and after it. */
export function splitClientContext(text) {
  const before = [];
  const after = [];
  let rest = text;
  for (let end; (end = blockEnd(rest, 0)) > 0; rest = rest.slice(end)) before.push(rest.slice(0, end).trim());
  for (let start; (start = blockStart(rest)) < rest.length; rest = rest.slice(0, start)) after.unshift(rest.slice(start).trim());
  return { own: before.length || after.length ? rest.trim() : text, before, after };
}

/** The collapsed blocks of a client. */
export function ClientContext({ blocks }) {
  const text = blocks.join("\n\n");
  const [open, setOpen] = useOpen(useHasHit(text));
  if (!blocks.length) return null;
  return html`
    <div class="client-context" data-testid="client-context">
      <button type="button" class="reasoning-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        <${Icon} name="info" size=${14} />
        <span>Context added by the client, ${number(text.length)} characters</span>
        <${Icon} name="chevron" size=${14} />
      </button>
      ${open && html`<div class="typed" dir="auto">${readable(text)}</div>`}
    </div>`;
}
