/**
 * Rules for approvals, "always allow" and "always deny": the form for a new one, the list with *Revoke*, and the answers to
 * the calls of a message. A rule is made by a click on *Always allow* or *Always deny* only.
 */
import { signal } from "@preact/signals";
import { html, useState } from "../html.js";
import { conversationPath, get, remove } from "../api.js";
import { attempt, Dialog } from "../dialog.js";
import { Icon } from "../icons.js";
import { AUTHOR, authorName, dateTime, oneLine, visible } from "../format.js";
import { route } from "../route.js";
import { useLoad } from "../use_load.js";

/** True while the list of rules is shown. */
export const rulesShown = signal(false);

const UNTIL = [["3600", "in 1 hour"], ["86400", "in 1 day"], ["2592000", "in 30 days"], ["", "when I revoke it"]];
const SCOPES = [["conversation", "in this conversation"], ["agent", "by this agent, everywhere"], ["store", "by every agent"]];
const FIRST_SCOPE = { scope: "conversation", what: "exact", prefix: "", seconds: "3600" };

/** Return the arguments of a call that are texts of one line: a prefix can be about one of them. */
const textsOf = (given) => Object.entries(given ?? {}).filter(([, value]) => typeof value === "string" && value && !/[\n\r]/.test(value));

/** The state of the form: its value is what a decision carries as `always`, or null while it is closed. */
export function useRule() {
  const [rule, setRule] = useState(null);
  return { rule, setRule, open: () => setRule(FIRST_SCOPE), close: () => setRule(null), always: rule && alwaysOf(rule) };
}

function alwaysOf({ scope, what, prefix, seconds }) {
  const always = { who: AUTHOR, scope, arguments: what === "any" ? "any" : "exact", seconds: seconds ? Number(seconds) : null };
  return what.startsWith("=") ? { ...always, argument: what.slice(1), prefix } : always;
}

/** What a rule will cover. @param {{name: string, given: object, rule: object, setRule: (rule: object) => void}} props */
export function RuleForm({ name, given, rule, setRule }) {
  const set = (change) => setRule({ ...rule, ...change });
  const texts = textsOf(given);
  const chosen = texts.find(([argument]) => rule.what === `=${argument}`);
  const choose = (what) => set({ what, prefix: texts.find(([argument]) => what === `=${argument}`)?.[1] ?? "" });
  const options = (all, now) => all.map(([value, label]) => html`<option value=${value} selected=${value === now}>${label}</option>`);
  const what = [
    ["exact", "exactly these arguments"], ...texts.map(([argument]) => [`=${argument}`, `${oneLine(argument, 30)} beginning with…`]), ["any", "any arguments"],
  ];
  return html`
    <fieldset class="approval-rule" data-testid="approval-rule">
      <legend>Also for later calls of <code>${visible(name)}</code></legend>
      <label class="labelled"><span>With</span>
        <select class="field" value=${rule.what} onChange=${(event) => choose(event.target.value)}>${options(what, rule.what)}</select></label>
      ${chosen && html`
        <label class="labelled"><span>${oneLine(chosen[0], 30)} begins with</span>
          <input class="field" value=${rule.prefix} onInput=${(event) => set({ prefix: event.target.value })} /></label>`}
      <label class="labelled"><span>Called</span>
        <select class="field" value=${rule.scope} onChange=${(event) => set({ scope: event.target.value })}>${options(SCOPES, rule.scope)}</select></label>
      <label class="labelled"><span>Ends</span>
        <select class="field" value=${rule.seconds} onChange=${(event) => set({ seconds: event.target.value })}>${options(UNTIL, rule.seconds)}</select></label>
      ${chosen && html`<p class="faint">All other arguments must be equal. A value that could begin another command is asked for.</p>`}
      ${rule.what === "any" && html`<p class="faint">You will not see these calls before they run.</p>`}
    </fieldset>`;
}

/** The list of all rules of the store. */
export function ApprovalRules() {
  return rulesShown.value ? html`<${Rules} />` : null;
}

function Rules() {
  const { data, error, reload } = useLoad("rules", (signal) => get("approval-rules", {}, { signal }));
  const revoke = (id) => attempt(async () => {
    await remove(`approval-rules/${encodeURIComponent(id)}`);
    await reload();
  });
  return html`
    <${Dialog} title="Rules for approvals" onClose=${() => (rulesShown.value = false)} data-testid="approval-rules">
      <div class="body">
        ${error && html`<p>${error.message}</p>`}
        ${data && !data.length && html`<p class="soft">No rules. When a tool call asks for approval, <b>Always…</b> makes one.</p>`}
        <ul class="rule-list">${data?.map((rule) => html`
          <li key=${rule.id}>
            <div><p dir="auto">${oneLine(rule.text, 400)}</p>
              <p class="faint">${[
                rule.conversation && oneLine(rule.conversation, 60), rule.expires ? `ends ${dateTime(rule.expires)}` : "until revoked",
                `made ${dateTime(rule.made)}${rule.who ? ` by ${authorName(rule.who)}` : ""}`, rule.id,
              ].filter(Boolean).join(" · ")}</p></div>
            <button type="button" class="button" aria-label=${`Revoke: ${oneLine(rule.text, 80)}`} onClick=${() => revoke(rule.id)}>Revoke</button>
          </li>`)}</ul>
      </div>
    <//>`;
}

/** How a call was approved or denied: by whom, or by which rule. @param {{seq?: number, call: string}} props */
export function CallAnswer({ seq, call }) {
  const { name } = route.value;
  const { data } = useLoad(seq && name ? `${name}/${seq}` : null, (signal) => get(conversationPath(name, "messages", seq, "approvals"), {}, { signal }));
  return (data ?? []).filter((each) => each.call === call).map((each) => html`
    <p class="faint" dir="auto" data-testid="call-answer"><${Icon} name=${each.allowed ? "check" : "denied"} size=${12} /> ${oneLine(each.text, 400)}</p>`);
}
