"""Which tensors of a file are the queries, keys, values and padding mask of which layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.vocabulary.text import printable

# as PyTorch, Hugging Face, fairseq, Flax, timm and Llama's own code name a projection or what it returns
_PROJECTIONS = ("{0}", "{0}_proj", "{0}_lin", "{0}_linear", "{0}_states", "{0}_layer", "to_{0}", "w{0}",
    "linear_{0}", "{0}_projection", "proj_{0}", "{0}proj")  # fmt: skip
QUERY_NAMES = (*(p.format(n) for p in _PROJECTIONS for n in ("q", "query")), "queries")
KEY_NAMES = (*(p.format(n) for p in _PROJECTIONS for n in ("k", "key")), "keys")
VALUE_NAMES = (*(p.format(n) for p in _PROJECTIONS for n in ("v", "value")), "values")
PADDING_NAMES = ("attention_mask", "padding_mask", "mask", "valid")
_INVERTED = ("key_padding_mask", "src_key_padding_mask")
_WEIGHT = re.compile(r"(q_proj|k_proj|query|key|qkv|c_attn|in_proj|wq|wk).*weight$", re.IGNORECASE)


@dataclass(frozen=True)
class LayerNames:
    """The names of one layer's tensors; `value` and `padding` are None where the file has none."""

    layer: str
    query: str
    key: str
    value: str | None = None
    padding: str | None = None


def find_layers(
    names: Iterable[str],
    *,
    query: str | None = None,
    key: str | None = None,
    value: str | None = None,
    padding: str | None = None,
) -> list[LayerNames]:
    """
    Return the layers of a file in natural order (layer 2 before layer 10).

    Parameters
    ----------
    names : iterable of str
        All tensor names. A name ends in a role (``layer0.q``, ``encoder/3/query_states``, ``h.1.attn.q_proj``,
        ``k``) after ``.``, ``/``, ``:`` or ``_``; what stands before it is the layer.
    query, key, value, padding : str, optional
        Names given by the user instead, one ``*`` standing for the layer: ``"h.*.attn.q"``.

    Raises
    ------
    ValueError
        When no pair is found, a query has no key, a given name is not in the file, or the only mask has a name
        (``key_padding_mask``) under which 1 means padding.
    """
    present = list(names)
    if (query is None) != (key is None):
        raise ValueError("name both the queries and the keys, or neither")
    roles = {name: split_role(name) for name in present}
    queries = _by_layer(roles, query, QUERY_NAMES, "queries")
    keys = _by_layer(roles, key, KEY_NAMES, "keys")
    values = _by_layer(roles, value, VALUE_NAMES, "values")
    masks = _by_layer(roles, padding, PADDING_NAMES, "padding mask")
    _check(present, queries, keys, masks)
    inverted = [name for name, (_, role) in roles.items() if role in _INVERTED]
    if inverted and not masks:
        raise ValueError(
            f"{printable(inverted[0])} marks padding by 1: store its inverse as attention_mask (1 = real token)"
        )
    return [
        LayerNames(layer or "-", name, keys[layer], values.get(layer), masks.get(layer, masks.get("")))
        for layer, name in sorted(queries.items(), key=lambda item: natural_order(item[0]))
    ]


def _check(present: Sequence[str], queries: dict[str, str], keys: dict[str, str], masks: dict[str, str]) -> None:
    if not queries:
        found = ", ".join(printable(name) for name in present[:6]) + (", …" if len(present) > 6 else "")
        if any(_WEIGHT.search(name) for name in present):
            raise ValueError(
                "the file holds a model's weights: audit those with --weights (analysis.audit_checkpoint), or capture "
                f"the queries and keys of a run, (batch, heads, length, d_k) (found {found})"
            )
        raise ValueError(
            f"no queries found (names such as layer0.q, or give them): the file holds {found or 'nothing'}"
        )
    for layer, name in queries.items():
        if layer not in keys:
            raise ValueError(f"{printable(name)} has no keys beside it (k or key)")


def _by_layer(
    present: Mapping[str, tuple[str, str]], given: str | None, roles: Sequence[str], what: str
) -> dict[str, str]:
    if given is None:
        found: dict[str, str] = {}
        for name, (layer, role) in present.items():
            if role in roles:
                if layer in found:
                    raise ValueError(
                        f"both {printable(found[layer])} and {printable(name)} could be the {what}: name one"
                    )
                found[layer] = name
        return found
    head, star, tail = given.partition("*")
    if not star:
        if given not in present:
            raise ValueError(f"the {what} {printable(given)!r} are not in the file")
        return {"": given}
    pattern = re.compile(re.escape(head) + "(.+)" + re.escape(tail))
    matches = {match.group(1): name for name in present if (match := pattern.fullmatch(name))}
    if not matches:
        raise ValueError(f"no tensor matches {printable(given)!r}")
    return matches


def split_role(name: str) -> tuple[str, str]:
    """Split ``layer0.query_states`` into ("layer0", "query_states"): the longest role that ends the name."""
    lower = name.lower()
    for role in _BY_LENGTH:
        if lower.endswith(role):
            if len(lower) == len(role):
                return "", role
            if name[-len(role) - 1] in "./:_":
                return name[: -len(role) - 1], role
    return name, ""


_ALL_ROLES = (*QUERY_NAMES, *KEY_NAMES, *VALUE_NAMES, *PADDING_NAMES, *_INVERTED)
_BY_LENGTH = sorted(_ALL_ROLES, key=len, reverse=True)


def natural_order(text: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", text)
    # digits compare by length, then by sign: as numbers do, whatever their length
    return [(len(part.lstrip("0")), part.lstrip("0")) if i % 2 else (-1, part) for i, part in enumerate(parts)]
