/** JSX without a build: `html` makes vnodes from tagged templates. Text in them is always text, never markup. */
import { Component, h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
export { Fragment, createContext, h, render } from "preact";
export * from "preact/hooks";

/** A component that is drawn again only when one of its properties is another one. */
export function memo(Shown) {
  class Memo extends Component {
    shouldComponentUpdate(next) {
      const [mine, keys] = [this.props, Object.keys(next)];
      return keys.length !== Object.keys(mine).length || keys.some((key) => !Object.is(mine[key], next[key]));
    }

    render(props) {
      return h(Shown, props);
    }
  }
  Memo.displayName = `Memo(${Shown.name})`;
  return Memo;
}
