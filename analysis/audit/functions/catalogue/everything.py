"""The catalogue as one: code -> what is known of it."""

from __future__ import annotations

from analysis.audit.functions.catalogue.masks import MASKS
from analysis.audit.functions.catalogue.scores import SCORES
from analysis.audit.functions.catalogue.structure import STRUCTURE
from analysis.audit.functions.catalogue.weights import WEIGHTS

CATALOGUE = {**STRUCTURE, **WEIGHTS, **SCORES, **MASKS}
