"""How each symbol of the notation looks."""

from __future__ import annotations

from typing import Any

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.typeset.boxes import Box, Fence, Root, Row, Script, Token

_LOGISTIC = Row((Token("Λ", r"\Lambda"), Fence(Token("z"))))
_SIGMA_Z = Script(Token("σ", r"\sigma"), Token("z"))

NAMES: dict[Any, Box] = {
    n.d_k: Token("d_k", markup="<msub><mi>d</mi><mi>k</mi></msub>"),
    n.n_keys: Token("n_keys", r"n_{\mathrm{keys}}", markup="<msub><mi>n</mi><mtext>keys</mtext></msub>"),
    n.d_model: Token("d_model", r"d_{\mathrm{model}}", markup="<msub><mi>d</mi><mtext>model</mtext></msub>"),
    n.rho: Token("ρ", r"\rho"),
    n.epsilon: Token("ε", r"\varepsilon"),
    n.scale: Token("scale", r"\mathrm{scale}"),
    n.log_Z: Token("log Z", r"\log Z"),
    n.mu_q: Script(Token("μ", r"\mu"), Token("q")),
    n.mu_k: Script(Token("μ", r"\mu"), Token("k")),
    n.sigma_q: Script(Token("σ", r"\sigma"), Token("q")),
    n.sigma_k: Script(Token("σ", r"\sigma"), Token("k")),
    n.sigma_z: _SIGMA_Z,
    n.X2: Token("X′", "{X'}"),
    n.Y2: Token("Y′", "{Y'}"),
    n.s_variance: Token("v"),
    n.s_third: Script(Token("μ", r"\mu"), Token("3", tag="mn")),
    n.H_t: Token("H"),
    n.log_1mt2: Token(
        "log(1 − t²)",
        r"\log\left(1-t^{2}\right)",
        markup="<mrow><mi>log</mi><mo>(</mo><mn>1</mn><mo>−</mo><msup><mi>t</mi><mn>2</mn></msup><mo>)</mo></mrow>",
    ),
    n.cgf: Token(
        "log E[exp(t·kᵀq)]",
        r"\log\mathbb{E}\left[e^{tk^{\top}q}\right]",
        markup=(
            "<mrow><mi>log</mi><mi>E</mi><mo>[</mo><msup><mi>e</mi><mrow><mi>t</mi><msup><mi>k</mi><mo>⊤</mo></msup>"
            "<mi>q</mi></mrow></msup><mo>]</mo></mrow>"
        ),
    ),
    n.two_key: Row(
        (
            Token("E", r"\mathbb{E}"),
            Fence(Row((_LOGISTIC, Fence(Row((Token("1", tag="mn"), Token(" − ", "-", "mo"), _LOGISTIC))))), "[", "]"),
        )
    ),
    n.bell_width: Row((_SIGMA_Z, Root(Fence(Token("2π", r"2\pi"))))),
    n.logistic_2: Script(Token("λ", r"\lambda"), Token("2", tag="mn")),
    n.logistic_4: Script(Token("λ", r"\lambda"), Token("4", tag="mn")),
}
VECTORS = {
    "k2": Token("k′", "{k'}"),
    "X2": Token("X′", "{X'}"),
    "Y2": Token("Y′", "{Y'}"),
    "u": Token("û", r"\hat{u}"),
    "w": Token("ŵ", r"\hat{w}"),
    "C_q": Token("C^q", "{C^{q}}", markup="<msup><mi>C</mi><mi>q</mi></msup>"),
    "C_k": Token("C^k", "{C^{k}}", markup="<msup><mi>C</mi><mi>k</mi></msup>"),
    "beta": Token("β", r"\beta"),
    "W_q": Token("W^q", "{W^{q}}", markup="<msup><mi>W</mi><mi>q</mi></msup>"),
    "W_k": Token("W^k", "{W^{k}}", markup="<msup><mi>W</mi><mi>k</mi></msup>"),
    "excess": Token("ξ", r"\xi"),
    "p_t": Token("p"),
    "cgf_i": Token("K"),
}


def vector_box(name: str) -> Box:
    """Return the box of a vector, by its name in the notation."""
    return VECTORS.get(name, Token(name))
