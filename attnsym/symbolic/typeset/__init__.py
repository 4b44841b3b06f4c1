"""How formulas are set: in Unicode, LaTeX and MathML."""
