/** Title and icon of the browser tab: the open view, whether a turn is running, and what needs approval. */
import { effect, signal } from "@preact/signals";
import { oneLine } from "./format.js";
import { route } from "./route.js";
import { conversations } from "./state.js";

/** The open conversation `{name, title, running, waits}`, or null. */
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
    const title = { open: "Open a file", overview: "Overview", search: "Search", inspect: `Inspect ${oneLine(name, 40)}`, chat: here?.title }[view];
    const others = conversations.value.items?.filter((each) => each.needs_approval && each.name !== here?.name).length ?? 0;
    const state = here?.waits ? "Needs approval · " : others ? `${others} need${others > 1 ? "" : "s"} approval · ` : here?.running ? "● " : "";
    document.title = `${state}${title ? `${title} · ` : ""}contextc`;
    const wanted = mark(here?.running || others ? 5.5 : 2.4);
    if (icon.href !== wanted) icon.href = wanted;
  });
}
