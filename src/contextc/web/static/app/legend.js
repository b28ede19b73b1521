/** Legend of the symbols of the web UI, shown with the keyboard shortcuts. */
import { html } from "./html.js";
import { Icon } from "./icons.js";

/** Place → symbols and meanings. A symbol is a character, or the name of an icon. */
const SYMBOLS = [
  ["Symbols in a conversation", [
    [{ icon: "check" }, "Tool call done"],
    [{ icon: "warning" }, "Tool call failed; error"],
    [{ icon: "denied" }, "Tool call denied, or not run"],
    [{ icon: "clock" }, "Needs approval; queued"],
    [{ icon: "think" }, "Reasoning of the model"],
    [{ icon: "info" }, "System message, notice, or context added by the client"],
    [{ icon: "branch" }, "Branches; compaction"],
    [{ icon: "pin" }, "Pinned: always kept in context"],
    ["⟨U+200B⟩", "An invisible character, by its code"],
    ["⟨80 spaces⟩", "Spaces or blank lines, counted"],
    ["●", "A turn is running"],
  ]],
  ["Symbols in the inspector", [
    ["=", "Unchanged since the previous request"],
    ["$", "Unchanged, but not read from the cache: paid again"],
    ["+", "New in this request"],
    ["±", "Changed since the previous request"],
    ["↻", "Sent again, uncached"],
    ["−", "Left out"],
    ["⚡", "The cached prefix ends here"],
    ["⊘", "Not answered"],
    ["▸", "First request"],
    ["✂", "Cache reset: context was full"],
    ["≡", "Cache reset: compaction"],
    ["✎", "Cache reset: a message was edited"],
    ["⟲", "Cache reset: session or context cleared"],
    ["◆", "Cache reset: prompt, tools or settings changed"],
  ]],
];

export function Legend() {
  return SYMBOLS.map(([where, symbols]) => html`
    <section key=${where} data-testid="legend">
      <h3>${where}</h3>
      <dl>${symbols.map(([symbol, meaning]) => html`
        <div><dt class="symbol">${symbol.icon ? html`<${Icon} name=${symbol.icon} />` : html`<code>${symbol}</code>`}</dt><dd>${meaning}</dd></div>`)}</dl>
    </section>`);
}
