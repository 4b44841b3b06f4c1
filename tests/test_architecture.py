"""
The house: which folder may import which, no circles, the public names and the weight of an import.

Every import counts: at the top of a file, inside a function, under TYPE_CHECKING, and by a literal name given to
`import_module`. An arrow goes from a module to the module (or the package's face) that it names.
"""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# analysis, from the ground up: a floor may import the floors below it. The face is analysis/__init__.pyi.
FLOORS = (
    ("vocabulary",),
    ("predict",),
    ("measure", "audit"),
    ("confront",),
    ("show",),
    ("face",),
    ("cli",),
    ("__main__",),
)

# The only arrows that point up: what a result's `plot` and `_repr_html_` import when a user asks for a picture, and the
# command, which `attnsym` lends its name to (its file says why).
UPWARD_HOOKS = {
    ("analysis.audit.over_time.trends", "analysis.show.plots"): "Trends.plot",
    ("analysis.audit.tensors.result", "analysis.show.plots"): "TensorAudit.plot",
    ("analysis.audit.weights.result", "analysis.show.plots"): "WeightsAudit.plot",
    ("analysis.measure.result", "analysis.show.plots"): "Study.plot",
    ("analysis.measure.result", "analysis.show.tables"): "Study as a page",
    ("attnsym.__main__", "analysis.cli"): "python -m attnsym",
}


def modules() -> dict[str, Path]:
    """Return the name and the file of every module; a package's name stands for its `__init__`."""
    found = {}
    for package in ("attnsym", "analysis"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found | {"analysis": ROOT / "analysis" / "__init__.pyi"}


def imported_names(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports; one that it may take from a package comes with the package's."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0 or path.suffix == ".pyi", f"{path}: relative imports hide the arrows"
                base = module if level == 0 else f"{path.parent.name}.{module}"
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"), args=[first, *_]):
                if isinstance(first, ast.Constant):
                    yield str(first.value)


def prefixes(name: str) -> Iterator[str]:
    """Yield `a.b.c`, `a.b`, `a`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


FILES = modules()


@cache  # not at import: every worker imports this file, and few read the sources
def names() -> dict[str, set[str]]:
    """Return what every module imports, by dotted name."""
    return {module: set(imported_names(path)) for module, path in FILES.items()}


@cache
def every_arrow() -> dict[str, set[str]]:
    return {
        module: {next((known for known in prefixes(name) if known in FILES), "") for name in imported} - {module, ""}
        for module, imported in names().items()
    }


@cache
def downward() -> dict[str, set[str]]:
    return {
        module: {target for target in targets if (module, target) not in UPWARD_HOOKS}
        for module, targets in every_arrow().items()
    }


def under(module: str, *folders: str) -> bool:
    return any(module == folder or module.startswith(folder + ".") for folder in folders)


def reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """Return everything that importing `start` and running it may import, itself apart."""
    found: set[str] = set()
    pending = [start]
    while pending:
        new = arrows[pending.pop()] - found
        found |= new
        pending += new
    return found


def offenders(sources: Iterable[str], *forbidden: str) -> list[str]:
    """Return what the sources import, foreign libraries too, from under the forbidden names."""
    return [f"{module} imports {name}" for module in sources for name in names()[module] if under(name, *forbidden)]


def within(*folders: str) -> list[str]:
    found = [module for module in FILES if under(module, *folders)]
    assert found, f"nothing lives in {folders}"
    return found


def floor(module: str) -> int:
    room = module.split(".")[1] if "." in module else "face"
    return next(height for height, rooms in enumerate(FLOORS) if room in rooms)


def circles(arrows: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """
    Return the circles between the children, files and folders alike, of every package.

    A folder counts as one, with all that lives in it: what holds between folders then holds between modules.
    """
    found = set()
    for package in {above for name in arrows for above in prefixes(name.rpartition(".")[0])}:
        depth = package.count(".") + 2

        def child(module: str, package: str = package, depth: int = depth) -> str:
            return ".".join(module.split(".")[:depth]) if under(module, package) else ""

        between: dict[str, set[str]] = {child(module): set() for module in arrows if child(module)}
        for module, targets in arrows.items():
            if child(module):
                between[child(module)] |= {child(target) for target in targets} - {child(module), ""}
        reach = {name: reached(name, between) for name in between}
        found |= {frozenset(n for n in reach if n in reach[m] and m in reach[n]) for m in reach if m in reach[m]}
    return found


def test_every_file_of_analysis_stands_on_a_floor():
    for module in within("analysis"):
        assert floor(module) >= 0, module


def test_arrows_of_analysis_point_down():
    wrong = [
        f"{module} imports {target}"
        for module in within("analysis")
        for target in downward()[module]
        if under(target, "analysis")
        and not (floor(target) < floor(module) or module.split(".")[:2] == target.split(".")[:2])
    ]
    assert wrong == []


def test_upward_hooks_are_in_use():
    assert [hook for hook in UPWARD_HOOKS if hook[1] not in every_arrow()[hook[0]]] == []


def test_no_circles():
    assert circles(downward()) == set()


def test_a_circle_is_found_between_folders_that_no_two_modules_close():
    arrows = {"p.a.one": {"p.b.one"}, "p.a.two": set(), "p.b.one": set(), "p.b.two": {"p.a.two"}}
    assert circles(arrows) == {frozenset({"p.a", "p.b"})}


def test_attnsym_never_imports_analysis():
    hooks = {module for module, _ in UPWARD_HOOKS}
    assert offenders([module for module in within("attnsym") if module not in hooks], "analysis") == []


def test_numeric_and_symbolic_halves_do_not_meet():
    symbolic = within("attnsym.symbolic")
    numeric = [module for module in within("attnsym") if module not in symbolic]
    assert offenders(numeric, "sympy", "attnsym.symbolic") == []
    shared = {"attnsym._expression", "attnsym._names", "attnsym._page"}
    assert [name for name in symbolic if reached(name, every_arrow()) & set(numeric) - shared] == []


def test_what_a_proof_rests_on_knows_no_sympy():
    """Nor does anything that it imports, so that the kernel is as short to read as it says."""
    trusted = within("attnsym.symbolic.trusted")
    assert offenders(trusted, "sympy", "mpmath") == []
    assert offenders(set().union(*(reached(name, every_arrow()) for name in trusted)), "sympy", "mpmath") == []


@pytest.mark.parametrize(
    ("wing", "kept_out"),
    [
        ("analysis.predict", ["analysis.measure", "attnsym.attention", "attnsym._scores", "attnsym._blocks"]),
        ("analysis.measure.draw", ["analysis.predict"]),
        ("analysis.audit.functions", ["analysis.audit.tensors", "analysis.audit.files", "analysis.audit.live"]),
        ("analysis.audit.live", ["analysis.audit.tensors", "analysis.audit.files", "analysis.audit.functions"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_must_stay_independent_does(wing, kept_out):
    """Not by way of another module either: confirmation is worth as much as the routes are independent."""
    met = {name: [m for m in reached(name, downward()) if under(m, *kept_out)] for name in within(wing)}
    assert {name: found for name, found in met.items() if found} == {}


def test_drawing_computes_nothing():
    drawing = [f"analysis.show.{name}" for name in ("plots", "heatmaps", "drawing")]
    assert offenders(drawing, "analysis.measure.draw", "analysis.predict", "attnsym.attention") == []


@pytest.mark.parametrize("package", ["attnsym", "attnsym.symbolic", "analysis"])
def test_all_is_the_public_face(package):
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name).__doc__ or not callable(getattr(module, name)), name


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import attnsym", ["sympy", "scipy", "matplotlib", "analysis"]),
        ("import analysis", ["sympy", "scipy", "matplotlib", "pandas", "torch", "distributed"]),
        ("import analysis.cli", ["sympy", "scipy", "matplotlib", "numpy"]),
    ],
)
def test_imports_stay_light(statement, absent):
    code = f"{statement}; import sys; print([m for m in {absent!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"
