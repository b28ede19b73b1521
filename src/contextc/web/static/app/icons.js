/** Icons by name. They are hidden from screen readers: the element around an icon has the label. */
import { html } from "./html.js";

const PATHS = {
  plus: ["M12 5v14", "M5 12h14"],
  search: ["M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14", "m20 20-4-4"],
  menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
  close: ["M6 6l12 12", "M18 6 6 18"],
  more: ["M5 12h.01", "M12 12h.01", "M19 12h.01"],
  send: ["M12 19V5", "m6 11 6-6 6 6"],
  stop: ["M7 7h10v10H7z"],
  sun: ["M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8", "M12 2v2M12 20v2M2 12h2M20 12h2", "m5 5 1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5"],
  moon: ["M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5"],
  system: ["M4 5h16v11H4z", "M9 20h6", "M12 16v4"],
  branch: ["M6 4v16", "M6 14c0-5 12-1 12-8", "M18 4a2 2 0 1 1 0 4 2 2 0 0 1 0-4"],
  fork: ["M7 4v5a4 4 0 0 0 4 4h2a4 4 0 0 1 4 4v3", "M17 4v5a4 4 0 0 1-4 4"],
  trash: ["M5 7h14", "M9 7V4h6v3", "M7 7l1 13h8l1-13"],
  edit: ["M4 20h4L19 9l-4-4L4 16z"],
  retry: ["M4 12a8 8 0 1 1 2.5 5.8", "M4 19v-5h5"],
  swap: ["M6 8h13", "m15 4 4 4-4 4", "M18 16H5", "m9 12-4 4 4 4"],
  copy: ["M9 9h11v11H9z", "M5 15H4V4h11v1"],
  chevron: ["m9 6 6 6-6 6"],
  left: ["m15 6-6 6 6 6"],
  right: ["m9 6 6 6-6 6"],
  down: ["M12 5v14", "m6 13 6 6 6-6"],
  back: ["M9 7H5V3", "M5 7a8.5 8.5 0 1 1-1 8"],
  eye: ["M2 12s4-7 10-7 10 7 10 7-4 7-10 7S2 12 2 12", "M12 9a3 3 0 1 1 0 6 3 3 0 0 1 0-6"],
  file: ["M6 3h8l4 4v14H6z", "M14 3v4h4"],
  warning: ["M12 4 2.5 20h19z", "M12 10v4", "M12 17h.01"],
  info: ["M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18", "M12 11v5", "M12 8h.01"],
  tool: ["M14.5 6.500a4 4 0 0 0-5 5L4 17l3 3 5.5-5.500a4 4 0 0 0 5-5L15 12l-3-3z"],
  think: ["M9 18h6", "M10 21h4", "M8.5 15a6 6 0 1 1 7 0c-.5.5-.5 1-.5 1.500H9c0-.5 0-1-.5-1.5"],
  clip: ["m20 11-8.5 8.500a5 5 0 0 1-7-7L13 4a3.5 3.5 0 0 1 5 5l-8.5 8.500a2 2 0 0 1-3-3L14 7"],
  download: ["M12 4v11", "m7 11 5 5 5-5", "M5 20h14"],
  share: ["M5 12v8h14v-8", "M12 15V3", "m7 8 5-5 5 5"],
  check: ["m5 12 5 5 9-10"],
  pin: ["M9 4h6l-1 6 3 3v2H7v-2l3-3z", "M12 15v5"],
  denied: ["M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18", "M5.7 5.7l12.600 12.6"],
  clock: ["M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18", "M12 7v5l3 2"],
  help: ["M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18", "M9.5 9.500a2.5 2.5 0 1 1 3.5 2.300c-.7.3-1 .8-1 1.7", "M12 16.500h.01"],
  chart: ["M4 20h16", "M7 20v-7", "M12 20V6", "M17 20v-10"],
  sidebar: ["M4 5h16v14H4z", "M10 5v14"],
};

export function Icon({ name, size = 16 }) {
  return html`
    <svg width=${size} height=${size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width=${name === "more" ? 2.6 : 1.8}
      stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      ${PATHS[name].map((path) => html`<path d=${path} />`)}
    </svg>`;
}

/** The contextc logo. */
export function Mark({ size = 22 }) {
  return html`
    <svg class="brand-mark" width=${size} height=${size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" class="brand-ground" />
      <path d="M21.5 10.2A8 8 0 1 0 21.5 21.8" fill="none" class="brand-ring" stroke-width="3" stroke-linecap="round" />
      <circle cx="21.8" cy="16" r="2.4" class="brand-point" />
    </svg>`;
}

/** Button that shows only an icon; `label` is its accessible name. */
export function IconButton({ icon, label, size = 16, class: className = "", title = label, ...rest }) {
  return html`
    <button type="button" class=${`icon-button ${className}`} aria-label=${label} title=${title} ...${rest}>
      <${Icon} name=${icon} size=${size} />
    </button>`;
}
