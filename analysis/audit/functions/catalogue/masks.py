"""Which keys are visible: masks, causal flag, windows."""

from __future__ import annotations

from analysis.audit.functions.catalogue.fault import MASK, SOFTMAX, Fault

MASKS = {
    "hidden-by-default": Fault(
        "note",
        "Some keys are hidden without being asked.",
        "a causal or window mask",
        "Nothing to fix where that is meant.",
        MASK + "|tri|window",
    ),
    "mask-ignored": Fault(
        "error", "The mask has no effect.", "mask argument unused", "Hide keys before softmax.", MASK
    ),
    "mask-inverted": Fault(
        "error",
        "The mask is read the other way round.",
        "where(mask, -inf, scores)",
        "where(mask, scores, -inf): True = may attend. State mask_means='drop' if that is the convention.",
        MASK,
    ),
    "mask-added": Fault(
        "error",
        "A boolean mask is added to the scores as 0 and 1: hidden keys keep weight.",
        "scores + mask",
        "scores + where(mask, 0, -inf)",
        MASK,
    ),
    "mask-multiplied": Fault(
        "error",
        "The mask multiplies the scores: hidden keys keep the score 0.",
        "scores * mask",
        "where(mask, scores, -inf)",
        MASK,
    ),
    "mask-leaks": Fault("error", "Hidden keys keep some weight.", "scores + (1 - mask) * -10", "Use -inf.", MASK),
    "mask-after-softmax": Fault(
        "error",
        "The mask acts after softmax without renormalising.",
        "softmax(scores) * mask",
        "Hide the scores before softmax.",
        MASK + "|" + SOFTMAX,
    ),
    "softcap-after-mask": Fault(
        "error",
        "The soft-cap acts after the mask and turns -inf into -cap.",
        "cap * tanh(masked / cap)",
        "Cap first, then mask.",
        r"tanh|mask|where",
    ),
    "mask-transposed": Fault(
        "error",
        "The mask is transposed: it hides (key, query).",
        "mask.T",
        "mask[i, j]: may query i attend to key j?",
        MASK,
    ),
    "mask-position": Fault(
        "error",
        "The mask hides other pairs than asked.",
        "mask.reshape(...)",
        "Check the mask's axes (batch, heads, n_queries, n_keys).",
        MASK,
    ),
    "mask-batch-order": Fault(
        "error",
        "Batch items get each other's masks.",
        "mask.repeat(heads, 1, 1)",
        "Repeat each item's mask for its own heads (repeat_interleave).",
        MASK + "|repeat|tile",
    ),
    "mask-all-true": Fault(
        "error",
        "A mask that hides nothing changes the result.",
        "if mask is not None: ...",
        "All-True must equal no mask.",
        MASK,
    ),
    "mask-scaled": Fault(
        "error",
        "A floating mask is multiplied by the scale: it is added before scaling.",
        "(q @ k.T + mask) * scale",
        "q @ k.T * scale + mask",
        MASK,
    ),
    "mask-boolean-only": Fault(
        "note", "A floating mask is not added to the scores.", "where(mask, ...)", "Pass boolean masks.", MASK
    ),
    "masked-row-nan": Fault(
        "note",
        "A row with all keys hidden gives NaN.",
        "softmax of a row of -inf",
        "Return 0 for such rows.",
        MASK + "|" + SOFTMAX,
    ),
    "masked-row-attends": Fault(
        "note",
        "A row with all keys hidden attends to hidden keys.",
        "where(mask, scores, -1e9)",
        "Use -inf and return 0 for such rows.",
        MASK,
    ),
    "nan-leak": Fault(
        "note",
        "A NaN in a hidden key or value reaches the output.",
        "weights @ value with 0 * NaN",
        "Zero hidden values, and hide scores with where, not by adding.",
        MASK + "|@",
    ),
    "causal-ignored": Fault(
        "error", "The causal flag has no effect.", "is_causal unused", "Hide keys j > i.", r"causal|tri"
    ),
    "causal-leaks": Fault(
        "error",
        "Under the causal flag later keys keep some weight.",
        "scores + (1 - tril) * -10",
        "Use -inf, after any soft-cap.",
        r"causal|tri|tanh",
    ),
    "causal-off-by-one": Fault(
        "error", "The causal mask is off by one.", "tril(ones, k=-1)", "tril(ones, k=0)", r"tri[ul]|causal|<|>"
    ),
    "causal-inverted": Fault(
        "error",
        "The causal mask shows the future and hides the past.",
        "triu(ones)",
        "tril(ones)",
        r"tri[ul]|causal|<|>",
    ),
    "causal-pattern": Fault(
        "error",
        "The causal flag hides something else than the future.",
        "tril(...)",
        "tril(ones)",
        r"tri[ul]|causal|mask",
    ),
    "causal-alignment": Fault(
        "note",
        "The causal diagonal is aligned bottom-right.",
        "tril(ones, k=n_keys - n_queries)",
        "PyTorch, JAX and ONNX align top-left; flash-attention bottom-right.",
        r"tri[ul]|causal",
    ),
    "causal-mask-replaced": Fault(
        "error",
        "A mask and the causal flag together do not intersect.",
        "mask = causal if is_causal else mask",
        "mask & causal",
        r"causal|mask",
    ),
    "padding-convention": Fault(
        "note",
        "In the padding mask True hides a key.",
        "masked_fill(key_padding_mask, -inf)",
        "State mask_means='keep' if it is meant to show.",
        MASK + "|padding",
    ),
    "against-mask": Fault(
        "error",
        "The two functions show different keys.",
        "",
        "Give both the same masks, alignment and convention.",
        MASK,
    ),
}
