"""Every derivation of the catalogue: TRUE, connected, printable, and satisfiable."""

import xml.etree.ElementTree as ElementTree

import pytest

from attnsym.symbolic import DERIVATIONS, Truth


@pytest.fixture(params=list(DERIVATIONS))
def derivation(request):
    return DERIVATIONS[request.param]


def test_verdict_is_true(derivation):
    verdict = derivation.check()
    assert verdict.truth is Truth.TRUE, str(verdict)


def test_pages(derivation):
    assert derivation.key in derivation.to_unicode()
    assert "\\begin{aligned}" in derivation.to_latex()
    for convention in ("columns", "rows"):
        ElementTree.fromstring(derivation.to_mathml(convention))
