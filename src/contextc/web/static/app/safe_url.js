/** Return the URL of a link if its scheme is http, https or mailto, else "". */
export function safeUrl(written) {
  const address = written.trim();
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return "";
  try {
    new URL(/^\w+:[/\\]*[^/?#]*/.exec(address)[0]); // check scheme and host first: the rest may be long
    return /[\u0000-\u0020\u007f]/.test(address) ? "" : new URL(address).href;
  } catch {
    return "";
  }
}
