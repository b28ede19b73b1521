/** The address of a link that may be followed, or "": http, https and mailto alone. */
export function safeAddress(written) {
  const address = written.trim();
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return "";
  try {
    new URL(/^\w+:[/\\]*[^/?#]*/.exec(address)[0]); // nothing behind the host can be wrong, and it may be long
    return /[\u0000-\u0020\u007f]/.test(address) ? "" : new URL(address).href;
  } catch {
    return "";
  }
}
