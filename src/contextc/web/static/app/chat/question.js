/**
 * A question of an MCP server while a tool runs: forms made of their JSON schema, and links as text. All texts are the server's,
 * which is named above them. Only the person opens a link. The answer carries the id and the hash of what is shown.
 */
import { html, useEffect, useState } from "../html.js";
import { Copy } from "../code_block.js";
import { attempt } from "../dialog.js";
import { visible } from "../format.js";
import { Icon } from "../icons.js";

/** Milliseconds that a question must be visible before it can be answered. */
const SETTLED = 500;
/** What was entered, by approval: a row of the list that is scrolled away is not kept. */
const entered = new Map();
const TYPES = { email: "email", uri: "url", date: "date" };

export function Question({ approval, client }) {
  const { id, hash, question } = approval;
  const [values, setValues] = useState(() => entered.get(id) ?? new Map());
  const [isSettled, setSettled] = useState(false);
  const [isSent, setSent] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLED);
    return () => clearTimeout(timer);
  }, []);
  const forms = question.requests.filter((each) => each.schema);
  const answer = async (approve, more) => {
    if (!isSettled || isSent) return;
    setSent(true);
    setProblem("");
    const send = async () => {
      try {
        await client.answer(approval, approve, "", more);
        entered.delete(id);
        return true;
      } catch (error) {
        if (error.kind !== "InvalidInput") throw error;
        setProblem(error.message);
        return false;
      }
    };
    if (!(await attempt(send))) setSent(false);
  };
  const submit = (event) => {
    event.preventDefault();
    const given = forms.map(({ key, schema }) => [key, contentOf(key, schema, values)]);
    answer(true, forms.length ? { content: forms.length === 1 ? given[0][1] : Object.fromEntries(given) } : {});
  };
  const change = (key, name, value) => {
    entered.set(id, new Map(values).set(`${key}\n${name}`, value));
    setValues(entered.get(id));
  };
  const off = !isSettled || isSent;
  return html`
    <form class="approval asked" aria-label=${`Question of the server ${visible(question.server)}`} onSubmit=${submit} data-testid="question-form">
      <h2><${Icon} name="warning" /> <span>The server ${visible(question.server)} asks</span></h2>
      <p class="faint">The text below is the server's. What you enter is sent to it: give no password or key that is not meant for it.</p>
      ${question.requests.map((request, at) => html`
        <div key=${request.key} class="asked-part">
          <p class="asked-text">${visible(request.message)}</p>
          ${request.url && html`<${Link} request=${request} />`}
          ${request.schema && Object.entries(request.schema.properties).map(([name, schema], index) => html`
            <${Field} key=${name} id=${`asked-${id}-${at}-${index}`} name=${name} schema=${schema} required=${request.schema.required.includes(name)}
              value=${valueOf(values, request.key, name, schema)} onChange=${(value) => change(request.key, name, value)} />`)}
        </div>`)}
      ${problem && html`<p class="asked-problem" role="alert">${visible(problem)}</p>`}
      <div class="approval-actions">
        <button type="submit" class="button primary" disabled=${off}>${forms.length ? "Send" : "Done"}</button>
        <button type="button" class="button" disabled=${off} onClick=${() => answer(false, {})}>Decline</button>
        <button type="button" class="button quiet" disabled=${off} title="Close the question without a decision"
          onClick=${() => answer(false, { cancel: true })}>Close</button>
      </div>
    </form>`;
}

/** A link: its host, and the whole address as text. */
function Link({ request: { url, host } }) {
  return html`
    <p class="faint">To answer, open this page of <strong>${visible(host)}</strong> yourself:</p>
    <p class="asked-link"><code dir="ltr">${visible(url)}</code> <${Copy} text=${url} label="Copy the link" /></p>`;
}

function Field({ id, name, schema, required, value, onChange }) {
  const { title, description } = schema;
  const isGroup = schema.type === "array";
  const about = description ? `${id}-about` : undefined;
  const label = html`<span>${visible(title || name)}${required ? "" : html` <span class="faint">(optional)</span>`}</span>`;
  const text = description && html`<span id=${about} class="faint">${visible(description)}</span>`;
  const common = { id, required, "aria-describedby": about };
  if (isGroup) {
    const toggle = (each) => onChange(value.includes(each) ? value.filter((other) => other !== each) : [...value, each]);
    return html`
      <fieldset class="asked-field" aria-describedby=${about}>
        <legend>${label}</legend>
        ${schema.items.anyOf.map((each) => html`
          <label key=${each.const} class="asked-choice">
            <input type="checkbox" checked=${value.includes(each.const)} onChange=${() => toggle(each.const)} /> ${visible(each.title || each.const)}
          </label>`)}
        ${text}
      </fieldset>`;
  }
  return html`
    <div class="asked-field">
      <label for=${id}>${label}</label>
      ${schema.oneOf || schema.type === "boolean" ? html`
        <select ...${common} class="field" value=${String(value)} onChange=${(event) => onChange(event.currentTarget.value)}>
          <option value="">Choose…</option>
          ${(schema.oneOf ?? YES_NO).map((each) => html`<option key=${each.const} value=${each.const}>${visible(each.title || each.const)}</option>`)}
        </select>` : html`
        <input ...${common} ...${limitsOf(schema)} class="field" autocomplete="off" value=${value} onInput=${(event) => onChange(event.currentTarget.value)} />`}
      ${text}
    </div>`;
}

const YES_NO = [{ const: "true", title: "Yes" }, { const: "false", title: "No" }];

/** Return the attributes of a field of text or a number, which the browser checks. */
function limitsOf({ type, format, minimum: min, maximum: max, minLength: minlength, maxLength: maxlength }) {
  if (type === "string") return { type: TYPES[format] ?? "text", minlength, maxlength };
  return { type: "number", min, max, step: type === "integer" ? 1 : "any" };
}

/** Return what a field shows: what was entered, else its default. */
function valueOf(values, key, name, { type, default: first }) {
  return values.get(`${key}\n${name}`) ?? first ?? (type === "array" ? [] : "");
}

/** Return the values of a form. A field that was left empty is left out. */
function contentOf(key, schema, values) {
  const given = Object.entries(schema.properties).map(([name, field]) => [name, typed(field, valueOf(values, key, name, field))]);
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}

function typed({ type }, value) {
  if (value.length === 0) return undefined;
  if (type === "boolean") return String(value) === "true";
  return type === "number" || type === "integer" ? Number(value) : value;
}
