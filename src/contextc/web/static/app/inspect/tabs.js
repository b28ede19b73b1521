/**
 * Accessible tabs: one tab stop; arrows, Home and End move between tabs. A click does not focus a tab, so that the arrows
 * still go to other requests.
 */
import { html, useEffect, useId, useRef } from "../html.js";

/**
 * @param {{tabs: {name: string, label: string, note?: string}[], current: string, choose: (name: string) => void,
 *   label: string, children: any}} props
 */
export function Tabs({ tabs, current, choose, label, children }) {
  const id = useId();
  const list = useRef(null);
  useEffect(() => {
    const { current: box } = list;
    const tab = box.querySelector("[aria-selected=true]");
    if (box.scrollWidth > box.clientWidth) tab?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [current]);
  const onKeyDown = (event) => {
    const at = tabs.findIndex((tab) => tab.name === current);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const wanted = tabs[(next + tabs.length) % tabs.length];
    choose(wanted.name);
    list.current.querySelector(`[data-tab="${wanted.name}"]`).focus();
  };
  const onMouseDown = (event) => {
    event.preventDefault();
    document.activeElement?.blur();
  };
  return html`<div class="tabs">
    <div class="tab-list" role="tablist" aria-label=${label} ref=${list} onKeyDown=${onKeyDown} onMouseDown=${onMouseDown}>
      ${tabs.map(
        (tab) => html`<button key=${tab.name} type="button" role="tab" class="tab" data-tab=${tab.name}
          id=${`${id}-${tab.name}`} aria-selected=${String(tab.name === current)} aria-controls=${`${id}-panel`}
          tabindex=${tab.name === current ? 0 : -1} onClick=${() => choose(tab.name)}>
          ${tab.label}${tab.note !== undefined && html`<span class="tab-note">${tab.note}</span>`}
        </button>`,
      )}
    </div>
    <div class="tab-panel" role="tabpanel" id=${`${id}-panel`} aria-labelledby=${`${id}-${current}`}>${children}</div>
  </div>`;
}
