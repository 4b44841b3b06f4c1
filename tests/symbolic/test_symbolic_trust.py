"""What is trusted stays small: no SymPy in the kernel, no simplification anywhere, nothing evaluated as code."""

import ast
from pathlib import Path

import pytest
from sympy import Symbol, exp, log

from attnsym.symbolic import D, E, Sum, Truth, d_k, i, j, k, moment, n_keys, p, prove, q, s
from attnsym.symbolic.refute.evaluator import Evaluator
from attnsym.symbolic.refute.laws import laws
from attnsym.symbolic.refute.marginals import PEAKED, SIGN

FOLDER = Path(__file__).parent.parent.parent / "attnsym" / "symbolic"
KERNEL = sorted(path.stem for path in (FOLDER / "trusted").glob("*.py"))
NEVER = {
    "simplify",
    "equals",
    "nsimplify",
    "lambdify",
    "parse_expr",
    "eval",
    "exec",
    "doit",
    "solve",
    "limit_seq",
}


def names_called(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            function = node.func
            yield function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", ""), node


@pytest.mark.parametrize("name", KERNEL)
def test_kernel_knows_no_sympy(name):
    tree = ast.parse((FOLDER / "trusted" / f"{name}.py").read_text(encoding="utf-8"))
    top_level = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {getattr(node, "module", None) or node.names[0].name for node in top_level}
    assert not any(module.startswith(("sympy", "mpmath", "attnsym.symbolic.language.notation")) for module in imported)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_nothing_is_simplified_or_evaluated_as_code(path):
    for name, node in names_called(path):
        assert name not in NEVER, f"{path.name}:{node.lineno} calls {name}"
        if name == "sympify":
            strict = {keyword.arg: keyword.value for keyword in node.keywords}.get("strict")
            assert isinstance(strict, ast.Constant)
            assert strict.value is True, f"{path.name}:{node.lineno}: sympify runs code in strings"


def test_exact_statements_stay_exact():
    """Integers as large as they come, and no array whose shape or dtype could change them."""
    assert prove(9**20, 12157665459056928801)
    assert prove(9**20, 12157665459056928802).truth is Truth.FALSE
    assert prove(2**63 * d_k + 1, 2**63 * d_k).truth is Truth.FALSE


def test_no_verdict_depends_on_a_name():
    """A moment of symbolic order is refused; a parameter means the same whatever it is called."""
    with pytest.raises(ValueError, match="order from 1 to 16"):
        moment(q, Symbol("order"))
    for name in ("y", "N", "lam", "X_1"):
        parameter = Symbol(name, real=True)
        assert prove(E(parameter * q[i]), parameter * E(q[i]))
        assert prove(E(parameter * q[i]), E(q[i])).truth is Truth.FALSE


def test_values_that_are_rounded_do_not_refute():
    """Σᵢ pᵢ is 1, and in decimals almost: what is true must not come back FALSE for the last digit."""
    assert prove(E(q[i]) * Sum(p[i], i), E(q[i]))
    verdict = prove(E(q[i]) * Sum(p[j], j) * E(q[i] ** 2), E(q[i]) * E(q[i] ** 2), ("zero_mean(k)",))
    assert verdict.truth is Truth.TRUE
    assert prove(log(Sum(exp(s[i]), i)), s[j] - log(p[j]))
    assert prove(D(log(p[i]), s[i]), 1 - p[i])
    assert prove(Sum(p[i], i) ** 3 * n_keys, n_keys)


@pytest.mark.parametrize(("marginal", "fourth"), [(SIGN, 1), (PEAKED, 4)])
@pytest.mark.parametrize("d", [1, 2])
def test_kurtosis_by_enumeration(marginal, fourth, d):
    """Excess kurtosis (m₄(q)m₄(k) − 3)/d_k: −2/d_k for signs."""
    word = {SIGN: "random signs ±1", PEAKED: "±2 with probability 1/8"}[marginal]
    law = next(
        law
        for law in laws(["q", "k"], sizes=(d,))
        if (law.name.startswith("independent components, of q " + word) and law.name.endswith("of k random signs ±1"))
        or (marginal is SIGN and law.name.startswith("components of q and k independent, random signs"))
    )
    kurtosis = Evaluator(law.d, 1, law, ()).of(E(Sum(q[i] * k[i], i) ** 4) / d_k**2 - 3, {})
    assert kurtosis * d == fourth - 3


def imports_of(path):
    """Every room that a file imports, lazily and for type checking too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnsym.symbolic"):
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


ROOMS = {
    ".".join(("attnsym", "symbolic", *path.relative_to(FOLDER).with_suffix("").parts)): imports_of(path)
    for path in FOLDER.rglob("*.py")
    if path.name != "__init__.py"
}


def test_rooms_form_no_circle():
    """Whoever is removed first imports only what is removed earlier; a circle is what never comes loose."""
    waiting = {room: imported & ROOMS.keys() for room, imported in ROOMS.items()}
    while loose := {room for room, imported in waiting.items() if not imported & waiting.keys()}:
        waiting = {room: imported for room, imported in waiting.items() if room not in loose}
    assert not waiting


def test_floors_of_the_house():
    """The kernel knows nothing above it; the notation, nothing of how it looks."""
    below = {"trusted": set(), "language": {"trusted"}, "typeset": {"trusted", "language"}}
    for room, imported in ROOMS.items():
        wing = room.split(".")[2]
        if wing in below:
            reached = {name.split(".")[2] for name in imported & ROOMS.keys()} - {wing}
            assert reached <= below[wing], room
    for name in KERNEL:
        for node in ast.walk(ast.parse((FOLDER / "trusted" / f"{name}.py").read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not any(module.startswith(("sympy", "mpmath", "attnsym.symbolic.language")) for module in modules)
