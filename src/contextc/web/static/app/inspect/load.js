/**
 * Asking the server from a component: what was there stays on the page, marked as old, until the next answer has come;
 * an answer that nobody waits for any more is dropped.
 */
import { useCallback, useEffect, useRef, useState } from "../html.js";

/**
 * @param {string|null} key what is asked for; another key asks again, null asks for nothing
 * @param {(signal: AbortSignal) => Promise<any>} ask
 * @param {{delay?: number}} options wait so long before asking, where somebody leafs through quickly
 * @returns {{data: any, error: Error|null, loading: boolean, of: string|null, again: () => void}}
 */
export function useLoad(key, ask, { delay = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, of: null });
  const [round, setRound] = useState(0);
  const asked = useRef(ask);
  asked.current = ask;
  useEffect(() => {
    if (key === null) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const data = await asked.current(stop.signal);
        if (!stop.signal.aborted) setState({ data, error: null, of: key });
      } catch (error) {
        if (!stop.signal.aborted) setState({ data: null, error, of: key });
      }
    }, delay);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key, round]);
  const again = useCallback(() => setRound((each) => each + 1), []);
  return { ...state, loading: key !== null && state.of !== key, again };
}
