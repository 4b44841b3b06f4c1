"""
Predict, measure, confirm and audit attention scores.

The public names stand in ``__init__.pyi``, one line each. They are looked up on first use, so that ``import analysis``
costs no SciPy, SymPy or matplotlib.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
