"""What a derivation consists of; the checker and the typesetter read it, `Derivation` offers both to people."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnsym.symbolic.derivation.steps import Axiom, Chain, Statement, Step
from attnsym.symbolic.trusted.assumptions import Assumption


@dataclass(frozen=True, repr=False)
class Argument:
    """
    A derivation: what it says, under which assumptions, and why.

    Attributes
    ----------
    key, title : str
        Its name in `DERIVATIONS`, and a line for people.
    chains : tuple of Chain
        Lemmas, the chains that prove the statement, and second routes.
    source : str
        Paper and section, or "derived here".
    remark : str
        What is easily misread.
    withdrawn : frozenset of Assumption
        Assumptions taken away by `without`.
    """

    key: str
    title: str
    chains: tuple[Chain, ...]
    source: str
    remark: str = ""
    withdrawn: frozenset[Assumption] = field(default=frozenset())

    @property
    def statement(self) -> Statement:
        """What is proved."""
        return Statement(tuple(chain.equation for chain in self.stated))

    @property
    def stated(self) -> tuple[Chain, ...]:
        """The chains that prove the statement: no lemmas, no second routes."""
        return tuple(chain for chain in self.chains if chain.role == "statement")

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps of all chains, in reading order."""
        return tuple(step for chain in self.chains for step in chain.steps)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What steps cite and what trusted sentences rest on, unless it was withdrawn, in order of first use."""
        cited = dict.fromkeys(item for step in self.steps for item in (*step.rests_on, *step.cites))
        return tuple(item for item in cited if item not in self.withdrawn)

    @property
    def axioms(self) -> tuple[Axiom, ...]:
        """What is put in without proof, trusted or supposed."""
        sources = (known.source for step in self.steps for known in step.known)
        return tuple(dict.fromkeys(source for source in sources if isinstance(source, Axiom)))

    @property
    def trusted(self) -> tuple[Axiom, ...]:
        """The axioms that every verdict prints; what is supposed stands in the statement itself."""
        return tuple(axiom for axiom in self.axioms if not axiom.supposed)
