"""What scores are made of: scale, norms, caps, positions."""

from __future__ import annotations

from analysis.audit.functions.catalogue.fault import SCALE, SOFTMAX, Fault

SCORES = {
    "scale": Fault(
        "error", "The scale is not the intended one.", "scores = q @ k.T", "scores = scale * (q @ k.T)", SCALE
    ),
    "scale-d-model": Fault(
        "warning",
        "The scale follows the model width 1/√(H·d_k) instead of the head width 1/√d_k.",
        "scores / sqrt(d_model)",
        "scores / sqrt(d_model // num_heads)",
        SCALE,
    ),
    "scale-axis": Fault(
        "warning",
        "The scale follows a size that is not the head's width.",
        "scores / sqrt(key.shape[-2])",
        "scores / sqrt(key.shape[-1])",
        SCALE,
    ),
    "scale-law": Fault(
        "note",
        "The scale is not 1/√d_k.",
        "scores = scale * (q @ k.T)",
        "State it as intended_scale: the audit then judges it.",
        SCALE,
    ),
    "scale-per-head": Fault(
        "note",
        "Heads have scales of their own.",
        "scale[:, None, None] * scores",
        "A known variant; nothing to fix.",
        SCALE,
    ),
    "scale-per-query": Fault(
        "note",
        "Queries have scales of their own (a temperature by position).",
        "temperature[:, None] * scores",
        "A known variant; nothing to fix.",
        SCALE + "|temperature|log",
    ),
    "negative-scale": Fault(
        "error",
        "The scale is negative: the most similar key gets the least weight.",
        "softmax(-scores)",
        "Remove the sign.",
        SCALE + "|" + SOFTMAX,
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
    "softcap-unintended": Fault(
        "error",
        "The soft-cap is not the intended one.",
        "cap * tanh(scores / cap)",
        "Set the cap that is meant.",
        "tanh|cap",
    ),
    "position": Fault(
        "note",
        "Scores depend on positions (a bias such as ALiBi, or rotary embedding).",
        "scores + bias",
        "A known variant; nothing to fix.",
        r"bias|rot|cos|sin|alibi|position",
    ),
    "distance": Fault(
        "note",
        "Scores hold the keys' squared length: they follow the distance of query and key.",
        "-|q - k|**2",
        "A known variant; nothing to fix.",
        r"pow|\*\* *2|cdist|sum|norm",
    ),
    "unexplained": Fault(
        "warning",
        "The weights are not the softmax of scale·q·k with the recovered scale.",
        "",
        "Look at what else enters the scores.",
        SOFTMAX,
    ),
    "against-scale": Fault(
        "error",
        "The two functions make scores in different ways.",
        "",
        "Give both the same scale, cap, norm and positions.",
        SCALE,
    ),
}
