/** Title and icon of the browser tab: the open view, and whether a turn is running. */
import { effect, signal } from "@preact/signals";
import { oneLine } from "./format.js";
import { route } from "./route.js";

/** The open conversation `{title, running}`, or null. */
export const openConversation = signal(null);

const mark = (point) =>
  `data:image/svg+xml,${encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#0b6b66"/>'
    + '<path d="M21.5 10.2A8 8 0 1 0 21.5 21.8" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/>'
    + `<circle cx="21.8" cy="16" r="${point}" fill="#f2a97f"/></svg>`,
  )}`;

export function watchBrowserTab() {
  const icon = document.querySelector("link[rel=icon]");
  effect(() => {
    const { view, name } = route.value;
    const here = view === "chat" ? openConversation.value : null;
    const title = { open: "Open a file", inspect: `Inspect ${oneLine(name, 40)}`, chat: here?.title }[view];
    document.title = `${here?.running ? "● " : ""}${title ? `${title} · ` : ""}contextc`;
    const wanted = mark(here?.running ? 5.5 : 2.4);
    if (icon.href !== wanted) icon.href = wanted;
  });
}
