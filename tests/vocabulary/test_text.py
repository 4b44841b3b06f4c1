"""Text from outside cannot steer a terminal; text of ours survives a terminal that knows only ASCII."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.vocabulary.strict_json import finite_or_none, json_text
from analysis.vocabulary.text import printable, spelled

STEERING = ["\x1b[31m", "\x07", "\x9b", "\x7f", "\r", "\u202e", "\u2066", "\u200f", "\udcff", "\u2028"]


@pytest.mark.parametrize("text", STEERING, ids=ascii)
def test_what_steers_a_terminal_is_escaped(text):
    assert printable(f"a{text}b").isprintable()
    shown = json_text({"name": text})
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {"name": text}


@settings(max_examples=50)
@given(
    st.recursive(st.none() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_json_returns_what_was_put_in_under_any_encoding(payload):
    payload = finite_or_none(payload)
    for encoding in ("utf-8", "cp1252", "ascii"):
        shown = json_text(payload, encoding=encoding)
        assert json.loads(shown) == payload
        shown.encode(encoding)


@given(st.characters())
def test_every_character_can_be_spelled_in_printable_ascii(character):
    word = spelled(character)
    assert word.isascii()
    assert word == character or word.isprintable()


@pytest.mark.parametrize(
    ("text", "ascii_text"), [("1/√d_k", "1/sqrt d_k"), ("kᵀq", "k^Tq"), ("σ²", "sigma^2"), ("─┼│", "-+|"), ("é", "e")]
)
def test_the_fields_notation_stays_legible(text, ascii_text):
    assert "".join(map(spelled, text)) == ascii_text
