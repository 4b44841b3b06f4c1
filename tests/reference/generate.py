"""
Reference digits for the exact predictions, in arb ball arithmetic (python-flint): writes `exact.json` beside itself.

Balls bound the rounding. The quadrature error is bounded by agreement: every row is computed with two settings (step,
truncation, precision, nodes), and only the digits on which both agree are kept. The formulas are not those of the
package, and some cancel, which costs nothing here: L by Frullani's integral, H as the derivative of E Σ pᵃ, tr J as
1 - E Σ p², ‖J‖_F² as P2 - 2 P3 + E(Σ p²)², ‖J z‖² by expanding it, E max p over the Gumbel noise of the winner.

    python tests/reference/generate.py
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import flint
from flint import arb, arb_mat

NAMES = (
    "logsumexp", "entropy", "power_sum_2", "power_sum_3", "jacobian_trace", "jacobian_frobenius_squared",
    "jacobian_radial_squared",
)  # fmt: skip
SIGMAS = (1e-3, 0.01, 0.05, 0.3, 0.9, 1.0, 1.1, 2.0, 5.5, 22.6, 64.0, 200.0)
N_KEYS = (2, 3, 10, 128, 1024, 65536, 10**6, 10**12)
MAX_SIGMAS = (1e-3, 0.3, 1.0, 5.5, 64.0, 200.0)
MAX_N_KEYS = (2, 10, 1024, 10**6, 10**12)
DIMENSIONS = (1, 2, 3, 8, 64, 512, 4096, 10**6)
DIMENSION_N_KEYS = (2, 10, 1024, 10**6, 10**12)
DIGITS = 20


@dataclass(frozen=True)
class Setting:
    """One way to discretise: trapezoidal step in log t and log w, tails dropped at e^-tail, bits, numbers of nodes."""

    step: float
    tail: float
    bits: int
    chi_nodes: int
    panel_nodes: int


SETTINGS = (Setting(0.15, 50.0, 200, 0, 20), Setting(0.13, 56.0, 220, 0, 24))
AVERAGED = (Setting(0.1875, 42.0, 140, 60, 0), Setting(0.171875, 46.0, 160, 72, 0))


@dataclass(frozen=True)
class Table:
    """Functions of u at one σ: E[wᵃ zᵇ e⁻ʷ] by (a, b) and E[(γ + log w) w e⁻ʷ], w = exp(u + z), z ~ N(0, σ²)."""

    step: arb
    moment: dict[tuple[int, int], list[arb]]
    log: list[arb]
    base: list[arb]  # a survival function with E = offset, so that L = offset + ∫ (base - φⁿ) du
    offset: arb


def tabulate(sigma: arb, log_n: float, s: Setting) -> Table:
    approximate = float(sigma.mid())
    lows = []
    for order in (1, 2, 3, 4):
        reach = math.sqrt(2 * (log_n + s.tail))
        gaussian = reach < order * approximate
        exponential = -(log_n + s.tail + (order * approximate) ** 2 / 2) / order - 3
        lows.append(-approximate * reach - 5 if gaussian else exponential)
    low, high = min(lows), math.sqrt(2 * s.tail) * approximate + 5
    if approximate < 1.05:
        return narrow(sigma, approximate, low, high, s)
    return wide(sigma, approximate, low, high, log_n, s)


def windows(values: list[arb], rows: int, columns: int, stride: int) -> arb_mat:
    return arb_mat(rows, columns, [values[stride * i + j] for i in range(rows) for j in range(columns)])


def column(matrix: arb_mat, index: int) -> list[arb]:
    return [matrix[i, index] for i in range(matrix.nrows())]


def narrow(sigma: arb, approximate: float, low: float, high: float, s: Setting) -> Table:
    """Average over z by a trapezoid against its density."""
    step = arb(s.step)
    stride = max(1, math.ceil(s.step / (0.55 * approximate)))
    rows = math.ceil((high - low) / s.step) + 1
    spacing = step / stride
    reach = math.sqrt(2 * s.tail)
    below = math.ceil(reach * approximate / float(spacing))
    above = math.ceil((reach + 4 * approximate) * approximate / float(spacing))
    z = [spacing * j for j in range(-below, above + 1)]
    gauss = [(-((x / sigma) ** 2) / 2).exp() for x in z]
    total = sum(gauss, arb(0))
    weights = arb_mat(len(z), 3, [g / total * x**b for g, x in zip(gauss, z, strict=True) for b in range(3)])
    v = [arb(low) + spacing * (i - below) for i in range((rows - 1) * stride + len(z))]
    w = [x.exp() for x in v]
    damped = [(-x).exp() for x in w]

    def average(values: list[arb]) -> arb_mat:
        return windows(values, rows, len(z), stride) * weights

    moment = {}
    for a in range(5):
        product = average([x**a * e for x, e in zip(w, damped, strict=True)])
        moment.update({(a, b): column(product, b) for b in range(3)})
    gamma = arb.const_euler()
    log = column(average([(gamma + x) * y * e for x, y, e in zip(v, w, damped, strict=True)]), 0)
    base = [(-(arb(low) + step * i).exp()).exp() for i in range(rows)]
    return Table(step, moment, log, base, arb(0))


def wide(sigma: arb, approximate: float, low: float, high: float, log_n: float, s: Setting) -> Table:
    """Average over v = log w by a trapezoid against wᵃ e⁻ʷ."""
    h = arb(s.step)
    stride = int(1 + 0.08 * approximate)
    rows = math.ceil((high - low) / (stride * s.step)) + 1
    top, bottom = math.ceil(math.log(s.tail + 60) / s.step), math.ceil((s.tail + log_n + 6) / s.step)
    v = [h * j for j in range(top, -bottom - 1, -1)]
    g = [h * (x - x.exp()).exp() for x in v]
    powers = [(a, b) for a in range(1, 5) for b in range(3)]
    weights = [y * x.exp() ** (a - 1) * x**b for x, y in zip(v, g, strict=True) for a, b in powers]
    x = [(arb(low) - v[0] + h * i) / sigma for i in range((rows - 1) * stride + len(v))]
    norm = 1 / (sigma * (2 * arb.pi()).sqrt())
    density = windows([(-(t**2) / 2).exp() * norm for t in x], rows, len(v), stride)
    product = density * arb_mat(len(v), len(powers), weights)
    # φ by its complement: the trapezoid then errs in proportion to 1 - φ, which φⁿ multiplies by n; and directly where
    # the complement would leave nothing of it.
    normal = windows([(-t / arb(2).sqrt()).erfc() / 2 for t in x], rows, len(v), stride)
    survival = windows([(t / arb(2).sqrt()).erfc() / 2 for t in x], rows, len(v), stride)
    mass = arb_mat(len(v), 1, g)
    pairs = zip(column(normal * mass, 0), column(survival * mass, 0), strict=True)
    moment = {(0, 0): [1 - below if below < 0.5 else above for below, above in pairs]}
    u = [arb(low) + h * stride * i for i in range(rows)]
    gamma, log = arb.const_euler(), []
    for a in range(1, 5):
        v0, v1, v2 = (column(product, powers.index((a, b))) for b in range(3))
        moment[a, 0] = v0  # z = v - u
        moment[a, 1] = [y - t * x for x, y, t in zip(v0, v1, u, strict=True)]
        moment[a, 2] = [q - 2 * t * y + t**2 * x for x, y, q, t in zip(v0, v1, v2, u, strict=True)]
        if a == 1:
            log = [gamma * x + y for x, y in zip(v0, v1, strict=True)]
    base = [(t / sigma / arb(2).sqrt()).erfc() / 2 for t in u]
    return Table(h * stride, moment, log, base, -gamma)


def by_sigma(sigma: arb, n_keys: tuple[int, ...], s: Setting) -> list[list[arb]]:
    """Return the values of NAMES at one σ, a row for each number of keys."""
    flint.ctx.prec = s.bits
    table = tabulate(sigma, math.log(max(n_keys)), s)
    log_phi = [p.log() for p in table.moment[0, 0]]
    return [by_keys(sigma, n, table, log_phi) for n in n_keys]


def by_keys(sigma: arb, n: int, table: Table, log_phi: list[arb]) -> list[arb]:
    powers = {k: [((n - k) * p).exp() for p in log_phi] for k in (0, 1, 2, 3) if n >= k}

    def integral(free: int, *factors: list[arb]) -> arb:
        """∫ of the factors times φ to the number of keys that are not among them."""
        total = arb(0)
        for values in zip(powers[free], *factors, strict=True):
            term = values[0]
            for value in values[1:]:
                term *= value
            total += term
        return total * table.step

    m = table.moment
    pairs, triples = n * (n - 1), n * (n - 1) * (n - 2)
    p2, p3 = n * integral(1, m[2, 0]), n * integral(1, m[3, 0]) / 2
    square = n * integral(1, m[4, 0]) / 6 + pairs * integral(2, m[2, 0], m[2, 0]) / 6
    # ‖J z‖² = Σ p_i² (z_i - z̄)² with z̄ = Σ p z: the three terms of the square, by which indices coincide.
    own = n * integral(1, m[2, 2])
    cross = n * integral(1, m[3, 2]) / 2 + pairs * integral(2, m[2, 1], m[1, 1]) / 2
    mean = n * integral(1, m[4, 2]) + 2 * pairs * integral(2, m[3, 1], m[1, 1]) + pairs * integral(2, m[2, 0], m[2, 2])
    if n > 2:
        mean += triples * integral(3, m[2, 0], m[1, 1], m[1, 1])
    logsumexp = table.offset + sum((b - p for b, p in zip(table.base, powers[0], strict=True)), arb(0)) * table.step
    entropy = -n * integral(1, table.log)
    radial = (own - 2 * cross + mean / 6) / sigma**2
    return [logsumexp, entropy, p2, p3, 1 - p2, p2 - 2 * p3 + square, radial]


def gauss_legendre(count: int) -> list[tuple[arb, arb]]:
    return [arb.legendre_p_root(count, k, weight=True) for k in range(count)]


def max_weight(sigma: float, n: int, s: Setting) -> arb:
    """E max p = n ∫∫ φ(x) g(u) ψⁿ⁻¹, 1 - ψ = Φ(-x) F(u) + ∫ f(u - y) Φ(y/σ - x) dy over y > 0, f(u) = exp(u - e^u)."""
    flint.ctx.prec = s.bits - 60
    log_n, sig, root2 = math.log(n), arb(sigma), arb(2).sqrt()
    u = [arb(s.step) * j for j in range(-math.ceil((s.tail + log_n) / s.step), math.ceil(4.5 / s.step))]
    x_step = s.step / math.sqrt(1 + 0.9 * log_n)
    x_high = math.sqrt(2 * (s.tail + log_n))
    normal, lost = statistics.NormalDist(), 1.2 * s.tail / (n - 1)
    x_low = max(-x_high, -normal.inv_cdf(-math.expm1(-lost))) if lost < 30 else -x_high
    x = [arb(x_low) + arb(x_step) * i for i in range(math.ceil((x_high - x_low) / x_step) + 1)]
    reach = min(sigma * (x_high + math.sqrt(2 * s.tail)), s.tail + log_n + 5)
    count = math.ceil(reach / (2.5 * min(1.0, sigma)))
    half = arb(reach) / (2 * count)
    y = [(half * (2 * i + 1 + t), half * w) for i in range(count) for t, w in gauss_legendre(s.panel_nodes)]
    noise = arb_mat(len(u), len(y), [(t - d - (t - d).exp()).exp() for t in u for d, _ in y])
    losing = arb_mat(len(y), len(x), [w * ((b - d / sig) / root2).erfc() / 2 for d, w in y for b in x])
    inner = noise * losing
    below = [(b / root2).erfc() / 2 for b in x]
    total = arb(0)
    for i, t in enumerate(u):
        within, far = (-(t.exp())).exp(), 1 - (-((t - arb(reach)).exp())).exp()
        line = arb(0)
        for j, b in enumerate(x):
            psi = 1 - below[j] * within - inner[i, j] - far  # beyond `reach` Φ is 1
            if psi > 0:  # where ψ drowns in the error of the inner quadrature, its power is below the tail
                line += (-(b**2) / 2 + (n - 1) * psi.log()).exp()
        total += line * (t - t.exp()).exp()
    return n * total * arb(s.step) * arb(x_step) / (2 * arb.pi()).sqrt()


def by_dimension(d: int, scale: Callable[[], arb], n_keys: tuple[int, ...], s: Setting) -> list[list[arb]]:
    """Average over ‖q‖ by Gauss-Legendre panels where the chi density is above e^-(tail - 4)/n² of its peak."""
    flint.ctx.prec = s.bits
    peak, tail = math.sqrt(d - 1), s.tail + 2 * math.log(max(n_keys))  # E Σ p³ may be as small as 1/n²

    def log_density(r: float) -> float:
        return ((d - 1) * math.log(r / peak) if d > 1 else 0.0) - (r**2 - peak**2) / 2

    low, high = (edge(log_density, peak, peak + sign * math.sqrt(2 * tail), 4 - tail) for sign in (-1, 1))
    low = 0.0 if low < 0.3 else low
    panels = 4 if low == 0 else 1  # softmax has no convergent power series at σ = 0
    half = (arb(high) - arb(low)) / (2 * panels)
    rule = gauss_legendre(s.chi_nodes if panels == 1 else s.chi_nodes // 2)
    nodes = [(arb(low) + half * (2 * i + 1 + t), w) for i in range(panels) for t, w in rule]
    weights = [w * ((d - 1) * (r / (peak or 1)).log() - (r**2 - d + 1) / 2).exp() for r, w in nodes]
    total = sum(weights, arb(0))
    tables = [by_sigma(scale() * r, n_keys, s) for r, _ in nodes]
    return [
        [sum((w * t[k][i] for w, t in zip(weights, tables, strict=True)), arb(0)) / total for i in range(len(NAMES))]
        for k in range(len(n_keys))
    ]


def edge(function: Callable[[float], float], inside: float, outside: float, level: float) -> float:
    """Bisect for where the function crosses the level; 0 where that lies below 0."""
    if outside <= 0:
        outside = 1e-12
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if function(middle) > level else (inside, middle)
    return outside


def agreed(first: arb, second: arb) -> str:
    """Keep the digits on which the two settings agree, at most DIGITS."""
    flint.ctx.prec = 250
    gap = abs(first - second) + first.rad() + second.rad()
    relative = float((gap / abs(second)).upper())
    digits = min(DIGITS, math.floor(-math.log10(relative)) if relative > 0 else DIGITS)
    return second.mid().str(max(digits, 1), radius=False)


def both(
    function: Callable[[Setting], list[list[arb]]], settings: tuple[Setting, Setting] = SETTINGS
) -> list[list[str]]:
    first, second = (function(s) for s in settings)
    return [[agreed(a, b) for a, b in zip(x, y, strict=True)] for x, y in zip(first, second, strict=True)]


def sigma_rows() -> list[list[object]]:
    rows: list[list[object]] = []
    for sigma in SIGMAS:
        values = both(lambda s, sigma=sigma: by_sigma(arb(sigma), N_KEYS, s))
        for n, row in zip(N_KEYS, values, strict=True):
            rows.append([sigma, n, *row])
        print("sigma", sigma, file=sys.stderr, flush=True)
    return rows


def max_rows() -> list[list[object]]:
    rows: list[list[object]] = []
    for sigma in MAX_SIGMAS:
        for n in MAX_N_KEYS:
            rows.append([sigma, n, *both(lambda s, a=sigma, n=n: [[max_weight(a, n, s)]])[0]])
        print("max", sigma, file=sys.stderr, flush=True)
    return rows


def dimension_rows() -> list[list[object]]:
    rows: list[list[object]] = []
    for d in DIMENSIONS:
        for name, power in (("sqrt", -1), ("unscaled", 0)):
            if d == 1 and power == 0:
                continue
            values = both(
                lambda s, d=d, p=power: by_dimension(d, lambda: arb(d).sqrt() ** p, DIMENSION_N_KEYS, s), AVERAGED
            )
            for n, row in zip(DIMENSION_N_KEYS, values, strict=True):
                rows.append([d, n, name, *row])
            print("d_k", d, name, file=sys.stderr, flush=True)
    return rows


def lines(rows: list[list[object]]) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"


def main() -> None:
    provenance = {
        "written_by": "tests/reference/generate.py",
        "arithmetic": f"arb balls, python-flint {flint.__version__}; digits are those on which two settings agree",
        "definition": "z iid N(0, sigma^2), sigma the binary64 number; p = softmax(z), J = diag(p) - p p^T; nats",
        "jacobian_radial_squared": "E |J z|^2 / sigma^2",
        "by_dimension": "sigma = scale * r, r ~ chi with d_k degrees of freedom; scale 1/sqrt(d_k) or 1",
    }
    body = [
        f'"provenance": {json.dumps(provenance, indent=1)}',
        f'"names": {json.dumps(NAMES)}',
        f'"by_sigma": {lines(sigma_rows())}',
        f'"max_weight": {lines(max_rows())}',
        f'"by_dimension": {lines(dimension_rows())}',
    ]
    Path(__file__).with_name("exact.json").write_text("{" + ",\n".join(body) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
