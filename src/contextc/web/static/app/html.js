/** JSX without a build step: `html` makes vnodes from tagged templates. Interpolated text is never markup. */
import { Component, h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
export { Fragment, createContext, h, render } from "preact";
export * from "preact/hooks";

/** Wrap a component so that it renders again only if one of its properties changes. */
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
