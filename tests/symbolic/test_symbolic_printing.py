"""Unicode, LaTeX and MathML: rendered, parsed, in both conventions; the page as a reader sees it."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
import sympy
from matplotlib.mathtext import MathTextParser
from sympy import Rational, exp, log, sqrt

from attnsym.symbolic import (
    DERIVATIONS,
    C_k,
    C_q,
    Cov,
    D,
    Dot,
    E,
    H,
    K,
    Sum,
    Trace,
    V,
    Var,
    WeightedCov,
    WeightedMean,
    WeightedVar,
    a,
    c,
    d_k,
    delta,
    derive,
    i,
    j,
    k,
    k2,
    l,
    moment,
    mu_q,
    n_keys,
    p,
    q,
    r,
    rho,
    s,
    scale,
    sigma_q,
    t,
    to_latex,
    to_mathml,
    to_unicode,
    x,
)
from attnsym.symbolic.typeset.boxes import Token

# What plain amsmath and MathJax know, of which the printer uses a part.
COMMANDS = {
    "beta",
    "Lambda",
    "aligned",
    "begin",
    "end",
    "text",
    "quad",
    "qquad",
    "left",
    "right",
    "frac",
    "sqrt",
    "sum",
    "operatorname",
    "mathbb",
    "mathrm",
    "log",
    "partial",
    "delta",
    "rho",
    "mu",
    "sigma",
    "lambda",
    "pi",
    "varepsilon",
    "xi",
    "hat",
    "bar",
    "top",
    "ne",
    "leq",
    "sim",
}
MATHML_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
MATHML_ELEMENTS = {
    "math",
    "mrow",
    "mi",
    "mn",
    "mo",
    "mtext",
    "msub",
    "msup",
    "msubsup",
    "mfrac",
    "msqrt",
    "munder",
    "munderover",
    "mover",
    "mspace",
}

EXPRESSIONS = {
    "Var(kᵀq/√d_k)": Var(Dot(k, q) / sqrt(d_k)),
    "E[(Σᵢ qᵢkᵢ)²] − (E[Σᵢ qᵢkᵢ])²": E(Sum(q[i] * k[i], i) ** 2) - E(Sum(q[i] * k[i], i)) ** 2,
    "Σ_{i≠j} qᵢqⱼkᵢkⱼ": Sum((1 - delta(i, j)) * q[i] * q[j] * k[i] * k[j], i, j),
    "Σ_{l≠i} pₗ": Sum((1 - delta(i, l)) * p[l], l),
    "Σᵢ Σⱼ qᵢqⱼ": Sum(q[i] * q[j], i, j),
    "pᵢ(δᵢⱼ − pⱼ)": p[i] * (delta(i, j) - p[j]),
    "−pⱼ(H + log pⱼ)": -p[j] * (log(p[j]) + H),
    "scale Cov_{i∼p}(Vᵢₐ, Kᵢᵣ)": scale * WeightedCov(V[i, a], K[i, r], i),
    "E_{i∼p}[xᵢ] + Var_{i∼p}(xᵢ)": WeightedVar(x[i], i) + WeightedMean(x[i], i),
    "∂pᵢ/∂sⱼ": D(p[i], s[j]),
    "e^{sᵢ}/(Σₗ e^{sₗ})": exp(s[i]) / Sum(exp(s[l]), l),
    "3d_k² + 6 d_k": 3 * d_k**2 + 6 * d_k,
    "(m₄(q)m₄(k) − 3)/d_k": (moment(q, 4) * moment(k, 4) - 3) / d_k,
    "1/4 − t²/16 + t⁴/96": Rational(1, 4) - t**2 / 16 + t**4 / 96,
    "tr(C^qC^k)": Trace(C_q, C_k),
    "Cov(kᵀq, k′ᵀq)": Cov(Dot(k, q), Dot(k2, q)),
    "c² d_k": c**2 * d_k,
    "1/√d_k": 1 / sqrt(d_k),
    "(1 + ρ²)/n_keys": (1 + rho**2) / n_keys,
    "μ_q² + σ_q²": sigma_q**2 + mu_q**2,
    "(Σᵢ pᵢ²)²": Sum(p[i] ** 2, i) ** 2,
    "(Σᵢ pᵢ)Σⱼ pⱼ²": Sum(p[i], i) * Sum(p[j] ** 2, j),
    "−2(qᵢ − kᵢ)": sympy.Mul(-2, q[i] - k[i], evaluate=False),
    "17/768": Rational(17, 768),
}


@pytest.mark.parametrize(("text", "expression"), EXPRESSIONS.items(), ids=list(EXPRESSIONS))
def test_unicode(text, expression):
    printed = to_unicode(expression)
    assert printed == text


def renders(latex):
    """Draw with a real typesetting engine; it raises on what it cannot set."""
    box = MathTextParser("path").parse(f"${latex}$", dpi=72)
    assert box.width > 0
    assert is_plain(latex)


def is_plain(latex):
    """Only known commands, and no construction that one engine forgives and another does not."""
    # Matplotlib lets a second superscript pass, which TeX and MathJax refuse: a prime is one as well.
    doubled = re.search(r"('|\^\{[^{}]*\}|\^\w)(_\{[^{}]*\})?\^", latex)
    return doubled is None and set(re.findall(r"\\([A-Za-z]+)", latex)) <= COMMANDS


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=list(EXPRESSIONS))
def test_latex_renders(expression):
    renders(to_latex(expression))


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=list(EXPRESSIONS))
def test_mathml_is_valid(expression):
    is_mathml(to_mathml(expression))


def is_mathml(text):
    root = ElementTree.fromstring(text)
    assert root.tag == MATHML_NAMESPACE + "math"
    counts = {"msub": 2, "msup": 2, "mfrac": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3, "math": 1}
    for element in root.iter():
        name = element.tag.removeprefix(MATHML_NAMESPACE)
        assert name in MATHML_ELEMENTS
        assert len(element) == counts.get(name, len(element))
        if name in ("mi", "mn", "mo", "mtext"):
            assert element.text
            assert not len(element)
    assert "InvisibleTimes" not in text


def test_conventions():
    assert to_unicode(Dot(k, q)) == "kᵀq"
    assert to_unicode(Dot(k, q), "rows") == "qkᵀ"
    assert to_latex(Dot(k, q), "rows") == r"qk^{\top}"
    assert derive("score-mean").to_unicode("rows") != derive("score-mean").to_unicode()
    with pytest.raises(ValueError, match="convention"):
        to_unicode(Dot(k, q), "diagonal")


@pytest.mark.parametrize("key", list(DERIVATIONS))
def test_statements_print(key):
    derivation = DERIVATIONS[key]
    for equation in derivation.statement.equations:
        renders(equation.to_latex())


@pytest.mark.slow
@pytest.mark.parametrize("key", list(DERIVATIONS))
def test_every_step_renders(key):
    derivation = DERIVATIONS[key]
    for step in derivation.steps:
        for convention in ("columns", "rows") if step.lhs.has(Dot) or step.rhs.has(Dot) else ("columns",):
            renders(step.to_latex(convention))
            is_mathml(step.to_mathml(convention))
    for mathml in derivation.statement.to_mathml().split("\n"):
        is_mathml(mathml)


@pytest.mark.parametrize("key", list(DERIVATIONS))
def test_pages(key):
    derivation = DERIVATIONS[key]
    page = derivation.to_unicode()
    assert "Indexed" not in page
    assert max(map(len, page.split("\n"))) <= 190
    for number, step in enumerate(derivation.steps, 1):
        assert f"({number}) {step.rule}" in page
    for item in derivation.assumptions:
        assert f"({item})" in page
    for axiom in derivation.axioms:
        assert " ".join(axiom.sentence.split()[:4]) in " ".join(page.split())
    fragment = ElementTree.fromstring(derivation.to_mathml())
    assert fragment.tag == "section"
    formulas = list(fragment.iter(MATHML_NAMESPACE + "math"))
    assert len(formulas) > len(derivation.steps)
    for formula in formulas:
        is_mathml(ElementTree.tostring(formula, encoding="unicode"))
    latex = derivation.to_latex()
    blocks = len(derivation.chains) + bool(derivation.assumptions)
    assert latex.count(r"\begin{aligned}") == blocks == latex.count(r"\end{aligned}")
    assert all(is_plain(row) for row in latex.split("\n"))


def test_the_headline_page_reads_like_a_textbook():
    lines = derive("score-variance").to_unicode().split("\n")
    formulas = [line.split("  (")[0].strip() for line in lines if line.startswith("  = ")]
    assert formulas == [
        "= Var(Σᵢ qᵢkᵢ)",
        "= E[(Σᵢ qᵢkᵢ)²] − (E[Σᵢ qᵢkᵢ])²",
        "= E[Σᵢ qᵢ²kᵢ² + Σ_{i≠j} qᵢqⱼkᵢkⱼ] − (E[Σᵢ qᵢkᵢ])²",
        "= Σᵢ E[qᵢ²kᵢ²] + Σ_{i≠j} E[qᵢqⱼkᵢkⱼ] − (Σᵢ E[qᵢkᵢ])²",
        "= Σᵢ E[qᵢ²]E[kᵢ²] + Σ_{i≠j} E[qᵢqⱼ]E[kᵢkⱼ] − (Σᵢ E[qᵢ]E[kᵢ])²",
        "= Σᵢ E[qᵢ²]E[kᵢ²] + Σ_{i≠j} E[qᵢ]E[qⱼ]E[kᵢkⱼ] − (Σᵢ E[qᵢ]E[kᵢ])²",
        "= Σᵢ E[qᵢ²]E[kᵢ²]",
        "= Σᵢ Var(qᵢ)Var(kᵢ)",
        "= Σᵢ 1",
        "= d_k",
    ]


def test_names_are_escaped():
    assert Token("<script>").mathml() == "<mi>&lt;script&gt;</mi>"
    is_mathml(to_mathml(sympy.Symbol("a<b&c")))


def test_rich_display():
    derivation = derive("score-mean")
    assert derivation._repr_latex_() == derivation.to_latex()
    assert str(derivation) == derivation.to_unicode()
    (equation,) = derive("score-mean").statement.equations
    assert equation._repr_latex_() == r"$\displaystyle \mathbb{E}\left[k^{\top}q\right]=0$"
    assert sympy.latex(E(q[i])) == r"\mathbb{E}\left[q_{i}\right]"
    assert str(Var(Dot(k, q))) == "Var(Dot(k, q))"
