"""A derivation as a page: statement, assumptions, each step with its rule, verdict, and what is easily misread."""

from __future__ import annotations

import textwrap
from html import escape

from attnsym.symbolic.derivation.argument import Argument
from attnsym.symbolic.derivation.checking import check
from attnsym.symbolic.derivation.steps import Axiom, Chain, Step
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.typeset.boxes import Row, math_element
from attnsym.symbolic.typeset.equations import right_side
from attnsym.symbolic.typeset.printing import Convention, Typesetter

WIDTH = 104


def unicode_page(derivation: Argument, convention: Convention) -> str:
    """Return the page as text."""
    verdict = check(derivation)
    lines = [f"{derivation.key}: {derivation.title}", "", "Statement"]
    lines += _statement_lines(derivation, convention)
    lines += ["", "Assumptions"]
    lines += [f"  [{label}] {item.sentence}  ({item})" for item, label in _labels(derivation).items()] or ["  none"]
    lines += [f"  withdrawn: {item.sentence}  ({item})" for item in sorted(derivation.withdrawn)]
    if verdict.moments:
        lines.append(f"  Finite must be: {', '.join(verdict.moments)}.")
    for label, sentence in _put_in(derivation):
        lines += _wrapped(f"[{label}] {sentence}")
    position = 0
    for chain in derivation.chains:
        lines += ["", _heading(chain), *_chain_lines(chain, derivation, position, verdict.step, convention)]
        position += len(chain.steps)
    lines += ["", *_wrapped(f"{verdict.truth.value}: {verdict.reason}.", "")]
    lines += _wrapped(str(verdict.witness)) if verdict.witness is not None else []
    if derivation.remark:
        lines += ["", "Remark", *_wrapped(derivation.remark)]
    lines += ["", f"Source: {derivation.source}"]
    return "\n".join(lines)


def _statement_lines(derivation: Argument, convention: Convention) -> list[str]:
    """Each equation; where there are several, with the assumptions of each."""
    proved = derivation.stated
    labels = _labels(derivation)
    lines = []
    for chain in proved:
        cited = sorted((item for item in chain.assumptions if item in labels), key=lambda item: int(labels[item][1:]))
        under = ", ".join(labels[item] for item in cited) if len(proved) > 1 else ""
        lines.append(f"  {chain.equation.to_unicode(convention)}{f'   [{under}]' if under else ''}")
    return lines


def _labels(derivation: Argument) -> dict[Assumption, str]:
    return {item: f"A{number}" for number, item in enumerate(derivation.assumptions, 1)}


def _put_in(derivation: Argument) -> list[tuple[str, str]]:
    """What is trusted or supposed, each with its label; T1, T2, … and S1, S2, …."""
    labels, lines = _axiom_labels(derivation), []
    assumed = _labels(derivation)
    for axiom, label in labels.items():
        under = sorted((item for item in axiom.under if item in assumed), key=list(assumed).index)
        rests = f" under {', '.join(assumed[item] for item in under)}" if under else ""
        lines.append((label, f"{'supposed' if axiom.supposed else 'trusted'}{rests}: {axiom.sentence}"))
    return lines


def _axiom_labels(derivation: Argument) -> dict[Axiom, str]:
    supposed = [axiom for axiom in derivation.axioms if axiom.supposed]
    return {axiom: f"T{number}" for number, axiom in enumerate(derivation.trusted, 1)} | {
        axiom: f"S{number}" for number, axiom in enumerate(supposed, 1)
    }


def _right(step: Step, setter: Typesetter) -> Row:
    return right_side(step.relation, step.rhs, step.remainder, setter)


def _heading(chain: Chain) -> str:
    return chain.heading or {"statement": "Derivation", "lemma": "Lemma", "second route": "Second route"}[chain.role]


def _chain_lines(
    chain: Chain, derivation: Argument, first: int, broken: int | None, convention: Convention
) -> list[str]:
    setter = Typesetter(convention)
    rows = [
        (f" {_right(step, setter).unicode()}", f"({number + 1}) {reason(step, derivation)}", step.note)
        for number, step in enumerate(chain.steps, first)
    ]
    column = min(max(len(left) for left, _, _ in rows) + 3, 70)
    lines = [f"  {setter.box(chain.steps[0].lhs).unicode()}"]
    for number, (left, right, note) in enumerate(rows, first):
        right += "   ✗ breaks" if number == broken else ""
        fits = len(left) < column
        lines += [left.ljust(column) + right] if fits else [left, " " * column + right]
        lines += textwrap.wrap(note, WIDTH, initial_indent="      ", subsequent_indent="      ")
    return lines


def reason(step: Step, derivation: Argument) -> str:
    """Return what stands beside a step: its rule and the labels of what it cites."""
    labels, axioms = _labels(derivation), _axiom_labels(derivation)
    present = sorted((item for item in step.cites if item in labels), key=list(labels).index)
    cited = [labels[item] for item in present] + [f"withdrawn {item}" for item in step.cites if item not in labels]
    for known in step.known:
        source = known.source
        cited.append(_put_in_name(source) if isinstance(source, Chain) else axioms[source])
    return f"{step.rule} [{', '.join(cited)}]" if cited else step.rule


def _put_in_name(chain: Chain) -> str:
    heading = _heading(chain)
    return heading[:1].lower() + heading[1:]


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    wrapped = []
    for paragraph in text.split("\n"):
        more = indent + " " * (len(paragraph) - len(paragraph.lstrip()))
        wrapped += textwrap.wrap(paragraph, WIDTH, initial_indent=indent, subsequent_indent=more) or [""]
    return wrapped


def latex_page(derivation: Argument, convention: Convention) -> str:
    """Return the page as aligned blocks: one for each chain, and one with the assumptions."""
    setter = Typesetter(convention)
    blocks = []
    for chain in derivation.chains:
        rows = [rf"&{setter.box(chain.steps[0].lhs).latex()} \\"]
        for step in chain.steps:
            right = _right(step, setter).latex()
            why = _plain(reason(step, derivation))
            rows.append(rf"&\quad {right} && \text{{{why}}} \\")
        blocks.append(_aligned(rows))
    assumed = [_plain(f"[{label}] {item}") for item, label in _labels(derivation).items()]
    return "\n\n".join([*blocks, *([_aligned([rf"&\text{{{own}}} \\" for own in assumed])] if assumed else [])])


def _aligned(rows: list[str]) -> str:
    return "$$\n\\begin{aligned}\n" + "\n".join(rows) + "\n\\end{aligned}\n$$"


def _plain(text: str) -> str:
    """Escape what is special to TeX in running text."""
    return text.replace("_", r"\_")


def mathml_page(derivation: Argument, convention: Convention) -> str:
    """Return the page as an HTML fragment with MathML."""
    setter, verdict = Typesetter(convention), check(derivation)
    parts = [f'<section class="derivation" id="{escape(derivation.key)}">', f"<h3>{escape(derivation.title)}</h3>"]
    parts += [equation.to_mathml(convention) for equation in derivation.statement.equations]
    assumed = "".join(
        f'<li data-assumption="{label}">[{label}] {escape(item.sentence)} <code>{escape(str(item))}</code></li>'
        for item, label in _labels(derivation).items()
    )
    parts.append(f"<ul>{assumed}</ul>" if assumed else "<p>No assumptions.</p>")
    first = 1
    for chain in derivation.chains:
        parts.append(f"<h4>{escape(_heading(chain))}</h4><table>")
        parts.append(f"<tr><td>{math_element(setter.box(chain.steps[0].lhs))}</td><td></td></tr>")
        for number, step in enumerate(chain.steps, first):
            right = math_element(_right(step, setter))
            note = f"<br/><small>{escape(step.note)}</small>" if step.note else ""
            why = f"({number}) {escape(reason(step, derivation))}{note}"
            parts.append(f'<tr data-step="{number}"><td>{right}</td><td>{why}</td></tr>')
        parts.append("</table>")
        first += len(chain.steps)
    trusted = "".join(f"<li>[{label}] {escape(sentence)}</li>" for label, sentence in _put_in(derivation))
    parts += [f"<ul>{trusted}</ul>"] * bool(trusted)
    decided = [line for line in str(verdict).split("\n") if not line.startswith("Trusted")]
    parts += [f'<p class="decided">{escape(line)}</p>' for line in decided]
    parts += [f"<p>{escape(derivation.remark)}</p>"] * bool(derivation.remark)
    parts += [f"<p>Source: {escape(derivation.source)}</p>", "</section>"]
    return "\n".join(parts)
