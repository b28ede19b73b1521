/** Model picker: search in known models, or type provider:model. */
import { signal } from "@preact/signals";
import { html, useId, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { placePopover } from "../menu.js";
import { oneLine, plural, tokens } from "../format.js";
import { info } from "../state.js";

const SHOWN = 60;
const RECORDED = "replay";

/** Window and prices by model, loaded when a list is opened first. */
const figures = signal(null);

function loadFigures() {
  if (figures.value) return;
  figures.value = {};
  get("models").then(({ models }) => { figures.value = Object.fromEntries(models.map((each) => [each.name, each])); }, () => { figures.value = null; });
}

const price = (dollars) => `$${dollars >= 100 ? Math.round(dollars) : Number(dollars.toPrecision(3))}`;

/** Return the window of a model and the prices of a million tokens in and out; "" if they are not known. */
function figuresOf(spec) {
  const found = figures.value?.[spec.slice(spec.indexOf(":") + 1)];
  if (!found?.window) return "";
  const { window: size, input_price: input, output_price: output } = found;
  return [tokens(size), input != null && `${price(input)} / ${price(output)}`].filter(Boolean).join(" · ");
}

/** Return the provider that a spec names, if it exists. */
function providerOf(spec) {
  const name = spec.split(":")[0].trim().toLowerCase();
  return info.value?.providers.find((each) => each.name === name || each.also.includes(name));
}

/** Return true if the provider of a spec is known. */
export const isKnownProvider = (spec) => Boolean(providerOf(spec));

/** Return the last model of a conversation; "" if the server cannot call its provider, and so uses its own model. */
export const usableModel = (spec) => (!info.value || !specProblem(spec) ? spec : "");

/** Return why a typed spec cannot be used; "" if it can. */
export function specProblem(typed) {
  const [name, ...model] = typed.trim().split(":");
  if (!model.length || name === RECORDED || isKnownProvider(typed)) return "";
  return `Unknown provider “${oneLine(name, 40)}”. Known: ${(info.value?.providers ?? []).map((each) => each.name).join(", ")}.`;
}

/**
 * Return the options of the list: models that are ready, and one row for each other provider, which expands to its models.
 * With a search term, all models that match.
 *
 * @typedef {{spec: string, provider: string, ready: boolean, own?: boolean, count?: number, isOpen?: boolean}} Option
 * @returns {Option[]}
 */
export function modelOptions(providers, typed, current, open) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (spec) => words.every((word) => spec.toLowerCase().includes(word));
  const rows = ({ name, models, is_ready: ready }) =>
    models.map((model) => ({ spec: `${name}:${model}`, provider: name, ready })).filter(({ spec }) => fits(spec));
  const asked = providerOf(current);
  const now = { spec: current, provider: asked?.name ?? "", ready: asked?.is_ready ?? true };
  const able = providers.filter((each) => each.is_ready).flatMap(rows).filter(({ spec }) => spec !== current);
  const ready = [...(current && fits(current) ? [now] : []), ...able];
  const others = providers.filter((each) => !each.is_ready || !each.models.length);
  const more = words.length ? others.flatMap(rows).filter(({ spec }) => spec !== current) : others.flatMap((each) => {
    const isOpen = open.has(each.name);
    const line = { spec: "", provider: each.name, ready: each.is_ready, count: each.models.length, isOpen };
    return [line, ...(isOpen ? rows(each).filter(({ spec }) => spec !== current) : [])];
  });
  const own = typed.trim();
  const isNew = /^[^:]+:./.test(own) && !specProblem(own) && ![...ready, ...more].some(({ spec }) => spec === own);
  const first = isNew ? [{ spec: own, provider: "", ready: providerOf(own)?.is_ready ?? true, own: true }] : [];
  return [...first, ...ready, ...(words.length ? more.slice(0, SHOWN) : more)];
}

/**
 * Return what is missing to call a model, and how to get it; "" if nothing is known to be missing.
 * @param {string} spec
 */
export function missingKey(spec) {
  const provider = providerOf(spec);
  if (!provider || provider.is_ready || provider.needs_key === false) return "";
  const variables = provider.variables?.join(" or ");
  return `No API key for ${provider.name}.${variables ? ` Set ${variables} in the server's environment, then restart the server.` : ""}`;
}

/** Note on a model that cannot be called yet. */
export function ModelNote({ spec }) {
  const missing = missingKey(spec);
  return html`<div role="status">${missing && html`<p class="dock-note" data-testid="model-note">${missing}</p>`}</div>`;
}

/**
 * Button with the list of models. It shows the chosen model, or with `icon` only an icon.
 * @param {{value: string, onChange: (spec: string) => void, icon?: string, label?: string, disabled?: boolean, "data-testid"?: string}} props
 */
export function ModelPicker({ value, onChange, icon = "", label = `Model: ${value || "not chosen"}`, disabled, "data-testid": testid = "model" }) {
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const [unfolded, setUnfolded] = useState(new Set());
  const button = useRef(null);
  const popup = useRef(null);
  const id = useId();
  const options = useMemo(
    () => (open ? modelOptions(info.value?.providers ?? [], typed, value, unfolded) : []),
    [open, typed, value, unfolded, info.value],
  );
  const wrong = open ? specProblem(typed) : "";
  useLayoutEffect(() => {
    if (!open) return;
    if (!popup.current.matches(":popover-open")) popup.current.showPopover();
    placePopover(popup.current, button.current);
    popup.current.querySelector("input").focus();
    loadFigures();
  }, [open]);
  useLayoutEffect(() => {
    if (open) popup.current.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [at, options]);
  const close = () => {
    setOpen(false);
    setTyped("");
    setAt(0);
    button.current?.focus();
  };
  const onToggle = (event) => {
    if (event.newState === "closed") {
      setOpen(false);
      setTyped("");
    }
  };
  const write = (text) => {
    setTyped(text);
    setAt(0);
    popup.current.querySelector("input").focus();
  };
  const choose = (option) => {
    if (!option) return;
    const { spec, provider, count } = option;
    if (spec) {
      onChange(spec);
      close();
    } else if (!count) write(`${provider}:`);
    else setUnfolded(new Set(unfolded.has(provider) ? [...unfolded].filter((each) => each !== provider) : [...unfolded, provider]));
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, options.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") choose(options[at]);
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`
    <button type="button" ref=${button} class=${icon ? "icon-button small" : "model-button"} aria-haspopup="listbox" aria-expanded=${open}
      onClick=${() => setOpen(!open)} disabled=${disabled} aria-label=${label} title=${icon ? label : "Choose a model"} data-testid=${testid}>
      ${icon ? html`<${Icon} name=${icon} size=${14} />` : html`<span>${oneLine(value || "model", 44)}</span><${Icon} name="chevron" size=${12} />`}
    </button>
    ${open && html`
      <div ref=${popup} popover="auto" class="menu model-menu" onKeyDown=${onKeyDown} onToggle=${onToggle}>
        <input class="field" role="combobox" aria-expanded="true" aria-controls=${id} placeholder="Search, or provider:model"
          aria-label="Search models, or type provider:model" aria-activedescendant=${options.length ? `${id}-${at}` : undefined}
          value=${typed} autocomplete="off" spellcheck="false"
          aria-describedby=${wrong ? `${id}-wrong` : undefined} aria-invalid=${wrong ? "true" : undefined}
          onInput=${(event) => { setTyped(event.target.value); setAt(0); }} />
        <div role="status">${wrong && html`<p id=${`${id}-wrong`} class="side-note bad-text" data-testid="model-wrong">${wrong}</p>`}</div>
        <div id=${id} role="listbox" aria-label="Models" class="model-list">
          ${options.map((option, index) => html`
            ${option.spec && option.provider && option.provider !== options[index - 1]?.provider
              && html`<p class="model-group" role="presentation" key=${`head ${index}`}>${option.provider}</p>`}
            <div key=${option.spec || `of ${option.provider}`} id=${`${id}-${index}`} role="option" aria-selected=${index === at}
              class=${option.ready ? "" : "not-ready"} onMouseMove=${() => setAt(index)} onClick=${() => choose(option)}>
              <${Line} option=${option} value=${value} />
            </div>`)}
          ${!options.length && !wrong && html`<p class="side-note">No known model matches. Type the full name, as in provider:model.</p>`}
        </div>
      </div>`}`;
}

function Line({ option: { spec, provider, ready, own, count, isOpen }, value }) {
  const note = ready ? "" : providerOf(spec || provider)?.needs_key === false ? "not installed" : "no key";
  if (!spec) {
    const models = count ? plural(count, "model") : `${provider}:…`;
    return html`
      <span class="menu-label">${provider}</span>
      <span class="menu-note">${[models, note].filter(Boolean).join(", ")}</span>
      ${count > 0 && html`<span class=${isOpen ? "unfolded" : "folded"}><${Icon} name="chevron" size=${12} /></span>
        <span class="off-screen">${isOpen ? "fold" : "unfold"}</span>`}`;
  }
  const about = own ? "" : figuresOf(spec);
  return html`
    <span class="menu-label">${own || !provider ? `${own ? "Use " : ""}${oneLine(spec, 60)}` : html`<span
        class="off-screen">${provider}:</span>${oneLine(spec.slice(spec.indexOf(":") + 1), 60)}`}</span>
    ${about && html`<span class="menu-note" title="Context window · US dollars per million tokens in / out">${about}</span>`}
    ${note && html`<span class="menu-note">${note}</span>`}
    ${spec === value && html`<${Icon} name="check" size=${14} />`}`;
}
