"""The import arrows, the public names and the weight of an import."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NUMERIC_SIDE = list((ROOT / "attnsym").glob("*.py"))
SYMBOLIC_SIDE = list((ROOT / "attnsym" / "symbolic").rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrows"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def offenders(paths, forbidden) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imported_modules(path)
        if any(name == target or name.startswith(target + ".") for target in forbidden)
    ]


def test_attnsym_never_imports_analysis():
    assert offenders((ROOT / "attnsym").rglob("*.py"), {"analysis"}) == []


def test_numeric_and_symbolic_halves_do_not_meet():
    assert offenders(NUMERIC_SIDE, {"sympy", "attnsym.symbolic"}) == []
    numeric = {f"attnsym.{p.stem}" for p in NUMERIC_SIDE} - {"attnsym.__init__", "attnsym._expression"}
    assert offenders(SYMBOLIC_SIDE, numeric) == []


def test_study_does_not_import_claims():
    study_side = list((ROOT / "analysis" / "measure").rglob("*.py"))
    assert offenders(study_side, {"analysis.confront"}) == []


def test_plots_and_report_compute_nothing():
    drawing = [p for p in (ROOT / "analysis" / "show").glob("*.py") if p.stem in {"plots", "heatmaps", "drawing"}]
    assert offenders(drawing, {"analysis.measure.draw.samplers", "analysis.predict.exact", "attnsym.attention"}) == []


@pytest.mark.parametrize("package", ["attnsym", "analysis"])
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
