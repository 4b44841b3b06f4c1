"""What has been published about attention scores, one record a sentence, by topic."""

from __future__ import annotations

from analysis.confront.published.length import LENGTH_SENTENCES
from analysis.confront.published.mechanisms import MECHANISM_SENTENCES
from analysis.confront.published.scores import SCORE_SENTENCES
from analysis.confront.published.softmax import SOFTMAX_SENTENCES

PUBLISHED = (*SCORE_SENTENCES, *SOFTMAX_SENTENCES, *LENGTH_SENTENCES, *MECHANISM_SENTENCES)
