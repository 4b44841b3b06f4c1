"""The zoo: correct designs are named and never called errors; planted faults are found by their first cause."""

import re

import pytest
from zoo_designs import DESIGNS, torch
from zoo_faults import FAULTS

from analysis import audit_callable


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products of 7 by 7 gain nothing from threads, and threads that wait for one another burn what others need."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def errors(audit):
    return [item.code for item in audit.findings if item.severity == "error"]


@pytest.mark.parametrize("name", DESIGNS)
def test_a_correct_design_is_named_and_not_accused(name):
    design = DESIGNS[name]
    audit = audit_callable(design.function, **design.keywords)
    assert errors(audit) == [], str(audit)
    assert re.search(design.named, str(audit)), str(audit)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_cause(name):
    planted = FAULTS[name]
    audit = audit_callable(planted.function, **planted.keywords)
    assert audit.faults, str(audit)
    assert audit.faults[0].code in planted.causes, str(audit)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_seed_changes_a_verdict(seed):
    accused = {
        name: found
        for name, design in DESIGNS.items()
        if (found := errors(audit_callable(design.function, seed=seed, **design.keywords)))
    }
    assert accused == {}
    missed = {}
    for name, planted in FAULTS.items():
        faults = audit_callable(planted.function, seed=seed, **planted.keywords).faults
        if not faults or faults[0].code not in planted.causes:
            missed[name] = [item.code for item in faults]
    assert missed == {}


def test_the_zoo_is_large_enough():
    assert len(DESIGNS) >= 60
    assert len(FAULTS) >= 60
