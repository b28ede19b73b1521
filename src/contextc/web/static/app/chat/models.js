/** Whom to ask: a picker over the models that are known, by search; and any other, by typing it. */
import { html, useId, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";
import { placed } from "../menu.js";
import { oneLine } from "../format.js";
import { info } from "../state.js";

const SHOWN = 60;

/** Models that fit what was typed: those that can be asked now come first. */
export function found(providers, typed, current) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const all = providers.flatMap(({ name, models, is_ready: ready, needs_key: key }) =>
    (models.length ? models : [""]).map((model) => ({ spec: model ? `${name}:${model}` : name, ready, key })));
  const fitting = all.filter(({ spec }) => words.every((word) => spec.toLowerCase().includes(word)));
  fitting.sort((one, other) => other.ready - one.ready || (other.spec === current) - (one.spec === current));
  const own = typed.trim();
  const isNew = own.includes(":") && !all.some(({ spec }) => spec === own);
  return [...(isNew ? [{ spec: own, ready: true, own: true }] : []), ...fitting.slice(0, SHOWN)];
}

/** @param {{value: string, onChange: (spec: string) => void, disabled?: boolean}} props */
export function ModelPicker({ value, onChange }) {
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const button = useRef(null);
  const popup = useRef(null);
  const id = useId();
  const options = useMemo(() => (open ? found(info.value?.providers ?? [], typed, value) : []), [open, typed, value, info.value]);
  useLayoutEffect(() => {
    if (!open) return;
    if (!popup.current.matches(":popover-open")) popup.current.showPopover();
    placed(popup.current, button.current);
    popup.current.querySelector("input").focus();
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
  const choose = (spec) => {
    onChange(spec);
    close();
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, options.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") choose(options[at]?.spec ?? (typed.trim() || value));
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`
    <button type="button" ref=${button} class="model-button" aria-haspopup="listbox" aria-expanded=${open} onClick=${() => setOpen(!open)}
      aria-label=${`Model: ${value || "not chosen"}`} title="Whom to ask" data-testid="model">
      <span>${oneLine(value || "model", 44)}</span><${Icon} name="chevron" size=${12} />
    </button>
    ${open && html`
      <div ref=${popup} popover="auto" class="menu model-menu" onKeyDown=${onKeyDown} onToggle=${onToggle}>
        <input class="field" role="combobox" aria-expanded="true" aria-controls=${id} placeholder="Search, or provider:model"
          aria-label="Search models, or type provider:model" aria-activedescendant=${options.length ? `${id}-${at}` : undefined}
          value=${typed} autocomplete="off" spellcheck="false"
          onInput=${(event) => { setTyped(event.target.value); setAt(0); }} />
        <div id=${id} role="listbox" aria-label="Models" class="model-list">
          ${options.map(({ spec, ready, own }, index) => html`
            <div key=${spec} id=${`${id}-${index}`} role="option" aria-selected=${index === at} class=${ready ? "" : "not-ready"}
              onMouseMove=${() => setAt(index)} onClick=${() => choose(spec)}>
              <span class="menu-label">${own ? `Use ${oneLine(spec, 60)}` : oneLine(spec, 60)}</span>
              ${!ready && html`<span class="menu-note">no key</span>`}
              ${spec === value && html`<${Icon} name="check" size=${14} />`}
            </div>`)}
          ${!options.length && html`<p class="side-note">No known model has that name. Type it whole, as in provider:model.</p>`}
        </div>
      </div>`}`;
}
