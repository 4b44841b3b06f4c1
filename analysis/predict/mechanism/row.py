"""The general integral: exact expectations over one row of independent keys, or rows of several lengths at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.predict.mechanism.columns import DEEPEST, columns, further
from analysis.predict.mechanism.distinct import PRODUCT, Row, Term, alike, beside, closure, together
from analysis.predict.mechanism.grid import RARE, UNSEEN, Grid, Group, centred, grid, second_end
from analysis.predict.mechanism.interpolation import shifted_columns
from analysis.predict.mechanism.key_law import Array, KeyLaw
from analysis.predict.quadrature import TAIL

# Quantity -> terms and their factors 1/Γ(order); "own_" columns are 0 for a sink, the others count it too.
TERMS: dict[str, dict[Term, float]] = {
    "mass": {("one",): 1.0},
    "own_mass": {("own_one",): 1.0},
    # Times -1, less γ and less ∫ u of the mass: E H = -γ - Σ ∫ E[(u + s) w e⁻ʷ] du.
    "quick_entropy": {("score",): 1.0},
    "entropy": {("kappa", "one"): 1.0},
    "mean_score": {("score",): 1.0},
    "power_sum_2": {("own_two",): 1.0},
    "power_sum_3": {("own_three",): 0.5},
    "jacobian_trace": {("one", "own_one"): 1.0},
    "jacobian_frobenius_squared": {
        ("own_two", "two"): 1 / 6, ("own_two", "own_two"): 1 / 6, ("one", "one", "own_two"): 1 / 6,
    },
    # Σ_ij J_ij² (ds_j/dx_j)², and Σ p_i² (y_i - Σ p y)² with y = x ds/dx: what the query's gradient is made of.
    "across": {("own_slope", "two"): 1 / 6, ("own_slope", "own_two"): 1 / 6, ("one", "one", "own_slope"): 1 / 6},
    "along": {
        ("own_two_xx", "two"): 1 / 6, ("own_two_x", "two_x"): -1 / 3, ("own_two", "two_xx"): 1 / 6,
        ("one", "one", "own_two_xx"): 1 / 6, ("one", "one_x", "own_two_x"): -1 / 3,
        ("one_x", "one_x", "own_two"): 1 / 6,
    },
}  # fmt: skip
# From this many shifts of one law on, they are interpolated from one table.
MANY_SHIFTS = 12
MASS_TOLERANCE = 1e-11
# Above, entropy may be a difference of terms of order log n; below, it is a sum of positive ones.
ENOUGH_ENTROPY = 0.1


def expectations(name: str, groups: Sequence[Group], counts: Array) -> Array:
    """
    Average a quantity over rows that have counts[g] keys of each group.

    Parameters
    ----------
    name : str
        A key of TERMS.
    groups : sequence of Group, length G
        Their own counts are not used.
    counts : ndarray of float, shape (G, rows)

    Returns
    -------
    ndarray, shape (rows,)

    Raises
    ------
    ArithmeticError
        Where the expected weights do not add up to 1: nothing inexact is returned.
    """
    if name == "logsumexp":
        return expectations("entropy", groups, counts) + expectations("mean_score", groups, counts)
    if name == "entropy":
        quick = expectations("quick_entropy", groups, counts)
        if np.all(quick > ENOUGH_ENTROPY):
            return quick
    groups, offset = centred(groups)
    wanted = _summed(TERMS[name], groups)
    terms = closure([*wanted, ("one",)])
    where, row = _joined(groups, counts, terms)
    remaining = np.exp(row[PRODUCT]) * where.weight
    mass = np.sum(remaining * row["one",], axis=-1)
    if not np.all(np.abs(mass - 1) < MASS_TOLERANCE):
        raise ArithmeticError(f"the expected weights add up to 1 + {np.max(np.abs(mass - 1)):.1e}")
    if name == "mass":
        return np.asarray(mass)
    if name == "quick_entropy":
        found = -np.euler_gamma - np.sum(remaining * (where.u * row["one",] + row["score",]), axis=-1)
        return np.asarray(found)
    if name == "mean_score":
        return np.asarray(offset * mass + np.sum(remaining * row["score",], axis=-1))
    return np.asarray(sum(factor * np.sum(remaining * row[term], axis=-1) for term, factor in wanted.items()))


def key_weights(groups: Sequence[Group], chosen: Sequence[int]) -> Array:
    """
    Average the weight of one key of each chosen group, in a row that has the groups' own counts.

    Parameters
    ----------
    groups : sequence of Group
    chosen : sequence of int
        Indices into groups.

    Returns
    -------
    ndarray, shape (len(chosen),)
    """
    groups, _ = centred(groups)
    counts = np.array([[group.size] for group in groups])
    terms = closure([("one",)])
    where, row = _joined(groups, counts, terms, RARE)
    remaining = np.exp(row[PRODUCT][0]) * where.weight
    if not abs(float(remaining @ row["one",][0]) - 1) < MASS_TOLERANCE:
        raise ArithmeticError("the expected weights do not add up to 1")
    log_n = math.log(float(counts.sum()))
    result = np.empty(len(chosen))
    for law in dict.fromkeys(groups[index].law for index in chosen):
        members = [place for place, index in enumerate(chosen) if groups[index].law == law]
        shifts = np.array([groups[chosen[place]].shift for place in members])
        deep = log_n + further(law, float(where.u[-1] + shifts.min()) + law.mean)
        result[members] = tables(law, where, shifts, frozenset({"one"}), deep)["one"] @ remaining
    return result


def prefix_expectations(name: str, keys: Sequence[Group], sink: Sequence[Group]) -> Array:
    """
    Average a quantity over the rows of the first 1, 2, ..., n of these keys: the rows under a causal mask.

    Parameters
    ----------
    name : str
        A key of TERMS, or "key_weight:" and the index of a key.
    keys : sequence of Group, length n
        In order, one key each.
    sink : sequence of Group
        None or one, that all rows have.

    Returns
    -------
    ndarray, shape (n,)
    """
    if name == "logsumexp":
        return prefix_expectations("entropy", keys, sink) + prefix_expectations("mean_score", keys, sink)
    groups, offset = centred([*keys, *sink])
    keys, sink = groups[: len(keys)], groups[len(keys) :]
    weighed = int(name.partition(":")[2]) if name.startswith("key_weight") else None
    wanted = {("one",): 1.0} if weighed is not None else _summed(TERMS[name], groups)
    terms = closure([*wanted, ("one",)])
    names = frozenset(name.removeprefix("own_") for term in terms for name in term)
    log_n = math.log(len(groups))
    where = grid(groups, [1.0] + [0.0] * (len(keys) - 1) + [1.0] * len(sink), uniform=len(keys) >= MANY_SHIFTS)
    tabulated: dict[str, Array] = {}
    for law in dict.fromkeys(group.law for group in keys):
        members = [i for i, group in enumerate(keys) if group.law == law]
        shifts = np.array([keys[i].shift for i in members])
        for column, values in tables(law, where, shifts, names, log_n).items():
            tabulated.setdefault(column, np.empty((len(keys), where.u.size)))[members] = values
    row: Row | None = None
    for group in sink:
        own = _own(tables(group.law, where, np.array([group.shift]), names, log_n), True)
        row = alike({name: values[0] for name, values in own.items()}, 1.0, terms)
    result = np.empty(len(keys))
    for index in range(len(keys)):
        key = alike(_own({name: values[index] for name, values in tabulated.items()}, False), 1.0, terms)
        row = key if row is None else beside(row, key, terms)
        remaining = np.exp(row[PRODUCT]) * where.weight
        mass = float(remaining @ row["one",])
        if not abs(mass - 1) < MASS_TOLERANCE:
            raise ArithmeticError(f"the expected weights add up to 1 + {mass - 1:.1e}")
        if weighed is not None:
            result[index] = remaining @ tabulated["one"][weighed] if index >= weighed else 0.0
        else:
            total = sum(factor * float(remaining @ row[term]) for term, factor in wanted.items())
            result[index] = total + (offset * mass if name == "mean_score" else 0.0)
    return result


def _canonical(term: Term, groups: Sequence[Group]) -> Term:
    """Without a sink every key is the row's own."""
    if any(group.is_sink for group in groups):
        return tuple(sorted(term))
    return tuple(sorted(name.removeprefix("own_") for name in term))


def _summed(terms: dict[Term, float], groups: Sequence[Group]) -> dict[Term, float]:
    total: dict[Term, float] = {}
    for term, factor in terms.items():
        place = _canonical(term, groups)
        total[place] = total.get(place, 0.0) + factor
    return total


def _joined(groups: Sequence[Group], counts: Array, terms: list[Term], unseen: float = UNSEEN) -> tuple[Grid, Row]:
    """Tabulate all groups on one grid and join them."""
    most, fewest = counts.max(axis=1), counts.min(axis=1)
    log_n = math.log(float(counts.sum(axis=0).max()))
    sized = [Group(g.law, g.shift, float(c), g.is_sink) for g, c in zip(groups, most, strict=True)]
    kept = [i for i, c in enumerate(most) if c > 0]
    by_law: dict[tuple[KeyLaw, bool], list[int]] = {}
    for i in kept:
        by_law.setdefault((groups[i].law, groups[i].is_sink), []).append(i)
    many = any(len(members) >= MANY_SHIFTS for members in by_law.values())
    present, least = [sized[i] for i in kept], [float(fewest[i]) for i in kept]
    where = grid(present, least, uniform=many, unseen=unseen)
    end = min(max(float(where.u[-1]), second_end(present, least, unseen)), float(where.u[-1]) + DEEPEST)
    names = frozenset(name.removeprefix("own_") for term in terms for name in term)
    total: Row | None = None
    for (law, is_sink), members in by_law.items():
        shifts = np.array([groups[i].shift for i in members])
        # Keys so far below two others that no row sees them are left out.
        seen = -shifts - law.upper(TAIL + 4 + log_n) < end
        if not np.any(seen):
            continue
        deep = log_n + further(law, float(where.u[-1]) - end)
        table = _own(tables(law, where, shifts[seen], names, deep), is_sink)
        alone = counts[np.array(members)[seen]]
        rows = alike({name: values[:, None] for name, values in table.items()}, alone[:, :, None], terms)
        row = together(rows, terms)
        total = row if total is None else beside(total, row, terms)
    assert total is not None
    return where, total


def tables(law: KeyLaw, where: Grid, shifts: Array, names: frozenset[str], log_n: float) -> dict[str, Array]:
    """Tabulate one law at several shifts, shape (shifts, nodes); "score" includes the shift."""
    if shifts.size >= MANY_SHIFTS and where.step:
        table = shifted_columns(law, where, shifts, names, log_n)
    else:
        each = [columns(law, where.u + shift, names, log_n) for shift in shifts]
        table = {name: np.stack([part[name] for part in each]) for name in each[0]}
    if "score" in names:
        table["score"] = table["score"] + shifts[:, None] * table["one"]
    return table


def _own(table: dict[str, Array], is_sink: bool) -> dict[str, Array]:
    """Add the columns of the row's own keys, which for a sink are 0."""
    return table | {"own_" + name: np.zeros_like(values) if is_sink else values for name, values in table.items()}
