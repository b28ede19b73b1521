/** Tables for TeX math: commands without a backslash, and what they are as text. */

const pairs = (text) => Object.fromEntries(text.trim().split(/\s+/).map((each) => each.split(":")));

/** Letters and signs that are set like letters. */
export const LETTERS = pairs(`
  alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ lambda:λ mu:μ nu:ν xi:ξ
  omicron:ο pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ
  Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ hbar:ℏ ell:ℓ Re:ℜ Im:ℑ aleph:ℵ
  emptyset:∅ varnothing:∅ imath:ı jmath:ȷ wp:℘ top:⊤ bot:⊥ ldots:… dots:… dotsc:… cdots:⋯ dotsb:⋯ vdots:⋮ ddots:⋱ degree:° prime:′ angle:∠
  triangle:△ square:□ Box:□ checkmark:✓ dagger:† S:§ P:¶ pounds:£ forall:∀ exists:∃ nexists:∄
`);

/** Operators, relations and arrows. */
export const OPERATORS = pairs(`
  times:× div:÷ cdot:⋅ pm:± mp:∓ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ ominus:⊖ otimes:⊗ odot:⊙ wedge:∧ land:∧ vee:∨ lor:∨ cap:∩ cup:∪
  setminus:∖ neg:¬ lnot:¬ le:≤ leq:≤ leqslant:⩽ ge:≥ geq:≥ geqslant:⩾ ne:≠ neq:≠ ll:≪ gg:≫ equiv:≡ sim:∼ simeq:≃ approx:≈ cong:≅ propto:∝
  in:∈ notin:∉ ni:∋ subset:⊂ subseteq:⊆ subsetneq:⊊ supset:⊃ supseteq:⊇ sqsubseteq:⊑ mid:∣ nmid:∤ parallel:∥ perp:⊥ models:⊨ vdash:⊢
  prec:≺ succ:≻ preceq:⪯ succeq:⪰ to:→ rightarrow:→ leftarrow:← gets:← leftrightarrow:↔ Rightarrow:⇒ Leftarrow:⇐ Leftrightarrow:⇔ implies:⟹
  impliedby:⟸ iff:⟺ longrightarrow:⟶ longleftarrow:⟵ Longrightarrow:⟹ Longleftarrow:⟸ mapsto:↦ longmapsto:⟼ hookrightarrow:↪ uparrow:↑
  downarrow:↓ updownarrow:↕ nearrow:↗ searrow:↘ rightleftharpoons:⇌ rightharpoonup:⇀ therefore:∴ because:∵ colon:∶ coloneqq:≔ triangleq:≜
  doteq:≐ asymp:≍ trianglelefteq:⊴ bowtie:⋈ amalg:⨿ ltimes:⋉ rtimes:⋊ boxplus:⊞ boxtimes:⊠ lt:< gt:> bmod:mod mod:mod
`);

export const BIG = pairs(`
  sum:∑ prod:∏ coprod:∐ int:∫ iint:∬ iiint:∭ oint:∮ bigcup:⋃ bigcap:⋂ bigvee:⋁ bigwedge:⋀ bigoplus:⨁ bigotimes:⨂ bigsqcup:⨆ biguplus:⨄
`);

export const FUNCTIONS = new Set(
  "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp arg deg dim ker hom".split(" "),
);

/** Functions with limits below them. */
export const LIMIT_FUNCTIONS = {
  lim: "lim", limsup: "lim sup", liminf: "lim inf", max: "max", min: "min", sup: "sup", inf: "inf", det: "det", gcd: "gcd", Pr: "Pr",
  argmax: "arg max", argmin: "arg min",
};

export const DELIMITERS = pairs(`
  lbrace:{ rbrace:} langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ vert:| lvert:| rvert:| Vert:‖ lVert:‖ rVert:‖ |:‖ backslash:\\
  lbrack:[ rbrack:] lgroup:⟮ rgroup:⟯
`);

/** Commands → sign; true if it is below; true if it stretches. */
export const ACCENTS = {
  hat: ["^"], widehat: ["^", false, true], bar: ["¯"], overline: ["‾", false, true], underline: ["_", true, true], vec: ["→"], dot: ["˙"],
  ddot: ["¨"], tilde: ["~"], widetilde: ["~", false, true], check: ["ˇ"], breve: ["˘"], acute: ["´"], grave: ["`"], mathring: ["˚"],
  overrightarrow: ["→", false, true], overleftarrow: ["←", false, true], overbrace: ["⏞", false, true], underbrace: ["⏟", true, true],
};

/** Widths of spaces; "" is none, because negative spaces are not supported everywhere. */
export const SPACES = {
  ",": "0.167em", thinspace: "0.167em", ":": "0.222em", ">": "0.222em", ";": "0.278em", " ": "0.25em", quad: "1em", qquad: "2em",
  enspace: "0.5em", "!": "", "\n": "0.25em",
};

const CENTRED = {};
const ALIGNED = { aligned: "rl" };

export const ENVIRONMENTS = {
  matrix: CENTRED, smallmatrix: CENTRED, gather: CENTRED, "gather*": CENTRED, gathered: CENTRED, equation: CENTRED, "equation*": CENTRED,
  multline: CENTRED, "multline*": CENTRED, pmatrix: { open: "(", close: ")" }, bmatrix: { open: "[", close: "]" },
  Bmatrix: { open: "{", close: "}" }, vmatrix: { open: "|", close: "|" }, Vmatrix: { open: "‖", close: "‖" },
  cases: { open: "{", aligned: "l" }, rcases: { close: "}", aligned: "l" }, array: { hasArgument: true }, align: ALIGNED, "align*": ALIGNED, aligned: ALIGNED,
  split: ALIGNED, eqnarray: ALIGNED, "eqnarray*": ALIGNED, alignedat: { ...ALIGNED, hasArgument: true }, alignat: { ...ALIGNED, hasArgument: true },
};

/** First characters of alphabets, and letters that are elsewhere in Unicode. */
export const FONTS = {
  bold: { A: 0x1d400, a: 0x1d41a, 0: 0x1d7ce },
  double: { A: 0x1d538, a: 0x1d552, 0: 0x1d7d8, others: pairs("C:ℂ H:ℍ N:ℕ P:ℙ Q:ℚ R:ℝ Z:ℤ") },
  script: { A: 0x1d49c, a: 0x1d4b6, others: pairs("B:ℬ E:ℰ F:ℱ H:ℋ I:ℐ L:ℒ M:ℳ R:ℛ e:ℯ g:ℊ o:ℴ") },
  fraktur: { A: 0x1d504, a: 0x1d51e, others: pairs("C:ℭ H:ℌ I:ℑ R:ℜ Z:ℨ") },
  sans: { A: 0x1d5a0, a: 0x1d5ba, 0: 0x1d7e2 },
  mono: { A: 0x1d670, a: 0x1d68a, 0: 0x1d7f6 },
};
