/**
 * Where a conversation went several ways. A branch begins after message `base` of its parent; a line is a way from the
 * root to a branch's end. At a message, the ways are those that say the same before it and something else there.
 */

const byNumber = (branches) => new Map(branches.map((each) => [each.number, each]));

/** The branch whose own a message of a line is. */
function ownerOf(all, number, seq) {
  let branch = all.get(number);
  while (branch && seq <= branch.base && branch.parent !== null && all.has(branch.parent)) branch = all.get(branch.parent);
  return branch?.number;
}

/**
 * The ways at every message where there are several.
 * @returns {Map<number, {at: number, branches: number[]}>} seq → which of them is shown, and a branch for each
 */
export function waysOf(branches) {
  const found = new Map();
  const current = branches.find((each) => each.current);
  if (branches.length < 2 || !current) return found;
  const all = byNumber(branches);
  for (const seq of new Set(branches.map((each) => each.base + 1))) {
    if (seq > current.length) continue;
    const before = ownerOf(all, current.number, seq - 1);
    const ways = new Map();
    for (const branch of [...branches].sort((one, other) => one.created - other.created)) {
      const same = seq === 1 || ownerOf(all, branch.number, seq - 1) === before;
      if (same && branch.length >= seq) ways.set(ownerOf(all, branch.number, seq), branch.number);
    }
    if (ways.size > 1) found.set(seq, { at: [...ways.keys()].indexOf(ownerOf(all, current.number, seq)), branches: [...ways.values()] });
  }
  return found;
}
