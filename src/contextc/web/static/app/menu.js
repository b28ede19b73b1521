/** Button with a menu in the browser's top layer, so that nothing clips it. Keys: arrows, Home, End, Escape. */
import { html, useId, useLayoutEffect, useRef, useState } from "./html.js";
import { Icon } from "./icons.js";

const GAP = 4;
const EDGE = 8;

/** Place a popover below its button, or above if there is more space. */
export function placePopover(popup, button, { align = "start" } = {}) {
  const at = button.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = popup;
  const below = innerHeight - at.bottom - GAP - EDGE;
  const up = height > below && at.top > below;
  const left = align === "end" ? at.right - width : at.left;
  popup.style.position = "fixed";
  popup.style.margin = "0";
  popup.style.inset = "auto";
  popup.style.left = `${Math.max(EDGE, Math.min(left, innerWidth - width - EDGE))}px`;
  if (up) popup.style.bottom = `${innerHeight - at.top + GAP}px`;
  else popup.style.top = `${at.bottom + GAP}px`;
}

/**
 * @typedef {{label: string, icon?: string, danger?: boolean, checked?: boolean, note?: string, disabled?: boolean, act: () => void}} Item
 *
 * @param {object} props
 * @param {string} props.label
 * @param {Item[]|(() => Item[])} props.items
 */
export function Menu({ label, items, icon = "more", children, align = "end", class: className = "icon-button", "data-testid": testid }) {
  const [open, setOpen] = useState(false);
  const button = useRef(null);
  const popup = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    if (!open) return;
    popup.current.showPopover();
    placePopover(popup.current, button.current, { align });
    (popup.current.querySelector("[aria-checked=true]") ?? popup.current.querySelector("button"))?.focus();
  }, [open]);
  const close = (focus = true) => {
    if (popup.current?.matches(":popover-open")) popup.current.hidePopover();
    setOpen(false);
    if (focus) button.current?.focus();
  };
  const onKeyDown = (event) => {
    const all = [...popup.current.querySelectorAll("button:not(:disabled)")];
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) all[to % all.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = open ? (typeof items === "function" ? items() : items) : [];
  return html`
    <button type="button" ref=${button} class=${className} aria-label=${label} title=${label} aria-haspopup="menu" aria-expanded=${open}
      aria-controls=${open ? id : undefined} data-testid=${testid}
      onClick=${(event) => { event.preventDefault(); event.stopPropagation(); setOpen(!open); }}>
      ${children ?? html`<${Icon} name=${icon} />`}
    </button>
    ${open && html`
      <div ref=${popup} id=${id} popover="auto" class="menu" role="menu" aria-label=${label} onKeyDown=${onKeyDown}
        onToggle=${(event) => event.newState === "closed" && setOpen(false)}>
        ${shown.map((item) => html`
          <button type="button" role=${item.checked === undefined ? "menuitem" : "menuitemradio"} aria-checked=${item.checked}
            class=${item.danger ? "danger" : ""} disabled=${item.disabled}
            onClick=${(event) => { event.stopPropagation(); close(); item.act(); }}>
            ${item.icon && html`<${Icon} name=${item.icon} />`}
            <span class="menu-label">${item.label}</span>
            ${item.note && html`<span class="menu-note">${item.note}</span>`}
            ${item.checked && html`<${Icon} name="check" size=${14} />`}
          </button>`)}
      </div>`}`;
}
