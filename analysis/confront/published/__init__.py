"""What has been published about attention scores, one record a sentence, by topic."""

from __future__ import annotations

from analysis.confront.published.entropy import ENTROPY_SENTENCES
from analysis.confront.published.initial import INITIAL_SENTENCES
from analysis.confront.published.length import LENGTH_SENTENCES
from analysis.confront.published.maps import MAP_SENTENCES
from analysis.confront.published.normalisers import NORMALISER_SENTENCES
from analysis.confront.published.norms import NORM_SENTENCES
from analysis.confront.published.positions import POSITION_SENTENCES
from analysis.confront.published.scores import SCORE_SENTENCES
from analysis.confront.published.softmax import SOFTMAX_SENTENCES

PUBLISHED = (
    *SCORE_SENTENCES,
    *INITIAL_SENTENCES,
    *SOFTMAX_SENTENCES,
    *ENTROPY_SENTENCES,
    *LENGTH_SENTENCES,
    *NORM_SENTENCES,
    *POSITION_SENTENCES,
    *NORMALISER_SENTENCES,
    *MAP_SENTENCES,
)
