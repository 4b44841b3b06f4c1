"""The catalogue of faults: for each its severity, a sentence, a typical line, the fix, and how to find the line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """What the catalogue knows of a code; ``pattern`` finds the line in the function's source."""

    severity: str
    title: str
    typical: str
    fix: str
    pattern: str


_SCALE = r"sqrt|scale|\*\*\s*-?0?\.5|/\s*\w*d|temperature|/ *\("
_MASK = r"mask|where|-inf|1e9|masked_fill"
_SPLIT = r"reshape|view|transpose|swapaxes|permute|rearrange"
_SOFTMAX = r"softmax|exp\("

CATALOGUE = {
    "dropout-on": Fault(
        "error",
        "Dropout is on in evaluation: two calls differ.",
        "dropout(weights, p)",
        "Pass dropout_p=0.0 unless training (F.dropout(..., training=self.training)).",
        r"dropout|random|rng",
    ),
    "random-output": Fault(
        "error",
        "Two calls with the same inputs differ, and not by dropout of weights.",
        "rng.normal(...)",
        "Remove the randomness, or seed it.",
        r"random|rng|dropout",
    ),
    "not-finite": Fault(
        "error",
        "The output is not finite, on inputs of ordinary size.",
        "softmax of a row of -inf, or 0 / 0",
        "Find the first NaN: a row that sees no key, a division by 0, a logarithm or root of a negative number.",
        r"nan|-inf|log|sqrt|/",
    ),
    "ignores-query": Fault(
        "error",
        "The output does not depend on the queries.",
        "scores = key @ key.T",
        "Build the scores from query and key.",
        r"@|einsum|matmul|bmm",
    ),
    "ignores-key": Fault(
        "error",
        "The output does not depend on the keys.",
        "scores = query @ query.T",
        "Build the scores from query and key.",
        r"@|einsum|matmul|bmm",
    ),
    "ignores-value": Fault(
        "error",
        "The output does not depend on the values.",
        "output = weights @ key",
        "Multiply the weights with value.",
        r"@|einsum|matmul|bmm",
    ),
    "swapped-query-key": Fault(
        "error",
        "Queries and keys are exchanged: row i of the output uses key i as its query.",
        "scores = key @ query.T",
        "scores = query @ key.T",
        r"@|einsum|matmul|bmm",
    ),
    "rows-mix": Fault(
        "error",
        "One query changes the output rows of other queries.",
        "a normalisation over the sequence",
        "Normalise over the last axis of each row only.",
        _SOFTMAX + r"|norm|mean|max",
    ),
    "batch-mix": Fault(
        "error",
        "One batch item changes the output of another.",
        "x.reshape(heads, batch, ...)",
        "Keep the batch axis apart in every reshape.",
        _SPLIT,
    ),
    "attends-over-heads": Fault(
        "error",
        "Attention runs over the heads of one token instead of over tokens.",
        "x.reshape(batch, length, heads, d) without .transpose(1, 2)",
        "Move the head axis before the sequence axis: x.transpose(1, 2).",
        _SPLIT,
    ),
    "head-split": Fault(
        "error",
        "Heads are split by reshape without transpose: a head sees pieces of several tokens.",
        "x.reshape(batch, heads, length, d)",
        "x.reshape(batch, length, heads, d).transpose(1, 2)",
        _SPLIT,
    ),
    "head-merge": Fault(
        "error",
        "Heads are merged by reshape without transpose: outputs land at other tokens.",
        "out.reshape(batch, length, heads * d)",
        "out.transpose(1, 2).reshape(batch, length, heads * d)",
        _SPLIT,
    ),
    "head-mix": Fault(
        "error",
        "A value of one head reaches outputs that are not its own.",
        "x.reshape(...)",
        "Split with reshape(batch, length, heads, d).transpose(1, 2) and merge with its inverse.",
        _SPLIT,
    ),
    "heads-not-split": Fault(
        "error",
        "Heads are not split: one softmax weighs the whole width.",
        "softmax(q @ k.T) @ v",
        "Split with reshape(batch, length, heads, d).transpose(1, 2).",
        _SPLIT + "|@",
    ),
    "heads-interleaved": Fault(
        "note",
        "Heads take every H-th channel instead of contiguous ones.",
        "x.reshape(batch, length, d, heads)",
        "Harmless if the weights were trained that way.",
        _SPLIT,
    ),
    "channels-mix": Fault(
        "warning",
        "Output channels mix value channels: a projection stands inside.",
        "out @ w_output",
        "Audit the function without its projections.",
        r"@|Linear|proj",
    ),
    "output-shape": Fault(
        "error",
        "The output has not the shape (n_queries, d_v) of attention.",
        "return output",
        "Return weights @ value, in the layout of the inputs.",
        r"return",
    ),
    "equal-lengths-only": Fault(
        "note",
        "Only equal numbers of queries and keys are accepted.",
        "scores.reshape(n, n)",
        "Needed only for cross-attention and decoding.",
        _SPLIT,
    ),
    "softmax-axis": Fault(
        "error",
        "Softmax normalises over the wrong axis.",
        "softmax(scores, axis=-2)",
        "softmax(scores, axis=-1): over the keys.",
        _SOFTMAX,
    ),
    "low-precision": Fault(
        "note",
        "The function computes in less precision than its inputs have.",
        "x.astype(float16)",
        "Nothing to fix where that is meant.",
        r"float16|half|bfloat|astype|\.to\(",
    ),
    "no-softmax": Fault(
        "error",
        "The weights are no softmax: some are negative.",
        "weights = scores",
        "weights = softmax(scores, axis=-1)",
        r"weights|@",
    ),
    "row-sums": Fault(
        "error",
        "The weights of a row do not sum to 1.",
        "weights / something",
        "Divide by the sum over the keys.",
        _SOFTMAX + "|sum",
    ),
    "sink": Fault(
        "note",
        "A sink takes part of every row: softmax with an additional logit that has no value.",
        "exp(s) / (c + sum(exp(s)))",
        "A known variant; nothing to fix.",
        _SOFTMAX,
    ),
    "scale": Fault(
        "error", "The scale is not the intended one.", "scores = q @ k.T", "scores = scale * (q @ k.T)", _SCALE
    ),
    "scale-d-model": Fault(
        "warning",
        "The scale follows the model width 1/√(H·d_k) instead of the head width 1/√d_k.",
        "scores / sqrt(d_model)",
        "scores / sqrt(d_model // num_heads)",
        _SCALE,
    ),
    "scale-law": Fault(
        "note",
        "The scale is not 1/√d_k.",
        "scores = scale * (q @ k.T)",
        "State it as intended_scale: the audit then judges it.",
        _SCALE,
    ),
    "negative-scale": Fault(
        "error",
        "The scale is negative: the most similar key gets the least weight.",
        "softmax(-scores)",
        "Remove the sign.",
        _SCALE + "|" + _SOFTMAX,
    ),
    "normalised": Fault(
        "note",
        "Queries or keys are normalised before the product (QK-norm, cosine).",
        "q / norm(q)",
        "A known variant; nothing to fix.",
        r"norm|rms",
    ),
    "softcap": Fault(
        "note", "Scores are soft-capped.", "cap * tanh(scores / cap)", "A known variant; nothing to fix.", "tanh"
    ),
    "position": Fault(
        "note",
        "Scores depend on positions (a bias such as ALiBi, or rotary embedding).",
        "scores + bias",
        "A known variant; nothing to fix.",
        r"bias|rot|cos|sin|alibi|position",
    ),
    "unexplained": Fault(
        "warning",
        "The weights are not the softmax of scale·q·k with the recovered scale.",
        "",
        "Look at what else enters the scores.",
        _SOFTMAX,
    ),
    "hidden-by-default": Fault(
        "note",
        "Some keys are hidden without being asked.",
        "a causal or window mask",
        "Nothing to fix where that is meant.",
        _MASK + "|tri|window",
    ),
    "mask-ignored": Fault(
        "error", "The mask has no effect.", "mask argument unused", "Hide keys before softmax.", _MASK
    ),
    "mask-inverted": Fault(
        "error",
        "The mask is read the other way round.",
        "where(mask, -inf, scores)",
        "where(mask, scores, -inf): True = may attend. State mask_means='drop' if that is the convention.",
        _MASK,
    ),
    "mask-added": Fault(
        "error",
        "A boolean mask is added to the scores as 0 and 1: hidden keys keep weight.",
        "scores + mask",
        "scores + where(mask, 0, -inf)",
        _MASK,
    ),
    "mask-multiplied": Fault(
        "error",
        "The mask multiplies the scores: hidden keys keep the score 0.",
        "scores * mask",
        "where(mask, scores, -inf)",
        _MASK,
    ),
    "mask-leaks": Fault("error", "Hidden keys keep some weight.", "scores + (1 - mask) * -10", "Use -inf.", _MASK),
    "mask-after-softmax": Fault(
        "error",
        "The mask acts after softmax without renormalising.",
        "softmax(scores) * mask",
        "Hide the scores before softmax.",
        _MASK + "|" + _SOFTMAX,
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
        _MASK,
    ),
    "mask-position": Fault(
        "error",
        "The mask hides other pairs than asked.",
        "mask.reshape(...)",
        "Check the mask's axes (batch, heads, n_queries, n_keys).",
        _MASK,
    ),
    "mask-batch-order": Fault(
        "error",
        "Batch items get each other's masks.",
        "mask.repeat(heads, 1, 1)",
        "Repeat each item's mask for its own heads (repeat_interleave).",
        _MASK + "|repeat|tile",
    ),
    "mask-all-true": Fault(
        "error",
        "A mask that hides nothing changes the result.",
        "if mask is not None: ...",
        "All-True must equal no mask.",
        _MASK,
    ),
    "mask-scaled": Fault(
        "error",
        "A floating mask is multiplied by the scale: it is added before scaling.",
        "(q @ k.T + mask) * scale",
        "q @ k.T * scale + mask",
        _MASK,
    ),
    "mask-boolean-only": Fault(
        "note", "A floating mask is not added to the scores.", "where(mask, ...)", "Pass boolean masks.", _MASK
    ),
    "masked-row-nan": Fault(
        "note",
        "A row with all keys hidden gives NaN.",
        "softmax of a row of -inf",
        "Return 0 for such rows.",
        _MASK + "|" + _SOFTMAX,
    ),
    "masked-row-attends": Fault(
        "note",
        "A row with all keys hidden attends to hidden keys.",
        "where(mask, scores, -1e9)",
        "Use -inf and return 0 for such rows.",
        _MASK,
    ),
    "nan-leak": Fault(
        "note",
        "A NaN in a hidden key or value reaches the output.",
        "weights @ value with 0 * NaN",
        "Zero hidden values, and hide scores with where, not by adding.",
        _MASK + "|@",
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
    "overflow": Fault(
        "error",
        "Large finite scores give NaN or infinite weights.",
        "exp(scores) / sum(exp(scores))",
        "Subtract the row's maximum first; accumulate in float32.",
        _SOFTMAX + "|float16|half",
    ),
    "large-scores": Fault(
        "error",
        "Large scores give wrong weights.",
        "clip(scores, ...)",
        "Do not clip scores.",
        r"clip|clamp|min|max|" + _SOFTMAX,
    ),
    "nonlinear": Fault(
        "error",
        "The weights are not exponential in the score: softmax is applied twice, or another nonlinearity stands there.",
        "softmax(softmax(scores))",
        "Apply softmax once, to scale·q·k.",
        _SOFTMAX,
    ),
    "float16-overflow": Fault(
        "note",
        "In float16 q·k overflows before it is scaled.",
        "(q @ k.T) * scale in float16",
        "Scale q first, or accumulate in float32.",
        r"@|einsum|matmul|" + _SCALE,
    ),
    "grouped-tiled": Fault(
        "error",
        "Grouped heads are tiled: query head h reads key head h mod H_kv.",
        "tile(key, H // H_kv)",
        "repeat(key, H // H_kv, axis=heads) (repeat_interleave).",
        r"tile|repeat|expand",
    ),
    "grouped-order": Fault(
        "error",
        "Grouped query heads read other key heads than h // (H / H_kv).",
        "repeat(...)",
        "Use repeat_interleave for keys and values alike.",
        r"tile|repeat|expand",
    ),
    "gradient": Fault(
        "error",
        "A gradient disagrees with finite differences.",
        "scores.detach()",
        "Remove detach/no_grad, or correct the backward pass.",
        r"detach|no_grad|backward|stop_gradient",
    ),
}
