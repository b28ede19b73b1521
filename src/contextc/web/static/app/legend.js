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
    ["⊘", "Failed or stopped"],
    ["≈", "Estimated: a share of the total that the provider reported, or all of it if it reported none"],
    ["A, B …", "A letter for each model, or agent, of the conversation"],
    ["▇", "A bar in the header: the input tokens of a request. The dark part was read from the cache, a cross is a failed request, a dot a costly finding"],
    ["▸", "First request"],
    ["✂", "Cache reset: context was trimmed"],
    ["≡", "Cache reset: compaction"],
    ["✎", "Cache reset: a message was edited"],
    ["⟲", "Cache reset: session or context cleared"],
    ["◆", "Cache reset: prompt, tools or settings changed"],
  ]],
  ["Words in the inspector", [
    ["cache epoch", "Requests that each begin like the one before. A cache reset begins the next one"],
    ["prefix", "The beginning that a request has in common with an earlier one. Only that can be read from the cache"],
    ["rewrite factor", "Tokens written to the cache (uncached ones, if none were written), divided by the largest request. 1.0 means that everything was paid in full once"],
    ["80% certain", "The probability that a finding names the right cause"],
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
