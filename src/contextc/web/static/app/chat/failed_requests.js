/** Requests of other software that failed, as notices: after the last message that they have in common with the open branch. */

const SHOWN = new Set(["error", "unanswered"]);

/**
 * Return the last message of another branch that is also on the current one; 0 if they have none in common.
 * @param {object[]} branches of the conversation; may be empty if there is only one @param {number} current
 */
export function sharedSeq(branches, current, branch, seq) {
  if (branch === current) return seq;
  const all = new Map(branches.map((each) => [each.number, each]));
  /** branch → the last of its messages that the current branch has */
  const ends = new Map([[current, Infinity]]);
  for (let at = all.get(current); at?.parent != null; at = all.get(at.parent)) {
    ends.set(at.parent, Math.min(at.base, ends.get(at.number)));
  }
  for (let at = all.get(branch), end = seq; at; at = all.get(at.parent)) {
    if (ends.has(at.number)) return Math.min(end, ends.get(at.number));
    end = Math.min(end, at.base);
  }
  return 0;
}

/**
 * Return notices of the failed requests. Equal failures in a row are one notice.
 * @param {object[]} requests of the timeline, oldest first @param {object[]} branches @param {number} current the open branch
 */
export function failedRequests(requests, branches, current) {
  const found = [];
  for (const { channel, request, branch, seq, observed, time } of requests) {
    if (!observed || !SHOWN.has(observed.status)) continue;
    const after = sharedSeq(branches, current, branch, seq);
    if (!after) continue;
    const { status, code, error } = observed;
    const last = found.at(-1);
    const isSame = last && last.channel === channel && last.until === request - 1 && last.after === after
      && last.status === status && last.code === code && last.error === error;
    if (isSame) last.until = request;
    else {
      const isElsewhere = branch !== current && after < seq;
      found.push({
        key: `r${channel}.${request}`, kind: "failed-request", uid: "", after, time: observed.began ?? time, channel, request, until: request,
        status, code, error, isElsewhere,
      });
    }
  }
  return found;
}
