/**
 * Versions of a message across branches. A branch begins after message `base` of its parent. Two branches have versions of
 * a message if they share all messages before it and differ at it.
 */

const byNumber = (branches) => new Map(branches.map((each) => [each.number, each]));

/** Return the branch that owns message `seq` of branch `number`. */
function ownerOf(all, number, seq) {
  let branch = all.get(number);
  while (branch && seq <= branch.base && branch.parent !== null && all.has(branch.parent)) branch = all.get(branch.parent);
  return branch?.number;
}

/**
 * Return the versions of every message that has several.
 * @returns {Map<number, {at: number, branches: number[]}>} seq → index of the current version, and a branch for each version
 */
export function versionsOf(branches) {
  const found = new Map();
  const current = branches.find((each) => each.current);
  if (branches.length < 2 || !current) return found;
  const all = byNumber(branches);
  for (const seq of new Set(branches.map((each) => each.base + 1))) {
    if (seq > current.length) continue;
    const before = ownerOf(all, current.number, seq - 1);
    const versions = new Map();
    for (const branch of [...branches].sort((one, other) => one.created - other.created)) {
      const same = seq === 1 || ownerOf(all, branch.number, seq - 1) === before;
      if (same && branch.length >= seq) versions.set(ownerOf(all, branch.number, seq), branch.number);
    }
    if (versions.size > 1) found.set(seq, { at: [...versions.keys()].indexOf(ownerOf(all, current.number, seq)), branches: [...versions.values()] });
  }
  return found;
}
