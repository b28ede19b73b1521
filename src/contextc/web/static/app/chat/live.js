/** The view that `contextc watch` links to: it waits for the first recorded request and opens its conversation in the inspector. */
import { html, useEffect } from "../html.js";
import { inspectUrl, navigate } from "../route.js";
import { conversations } from "../state.js";
import { DrawerButton } from "./conversation_header.js";

/** @param {{since: number}} props when the program was started */
export function Live({ since }) {
  const found = conversations.value.items?.find(
    ({ observed, spoken, created }) => observed?.kind === "main" && Math.max(spoken, created) >= since,
  );
  useEffect(() => {
    if (found) navigate(inspectUrl(found.name), { replace: true });
  }, [found?.name]);
  return html`
    <header class="view-head bare only-narrow"><${DrawerButton} /></header>
    <div class="empty" role="status" data-testid="waiting">
      <h2>Waiting for the first request</h2>
      <p>The inspector opens here as soon as the program has asked its model.</p>
    </div>`;
}
