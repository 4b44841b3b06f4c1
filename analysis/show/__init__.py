"""Pictures, tables and the report; nothing is measured here."""

import lazy_loader

# `analysis.plots` is found through here, without matplotlib until it is asked for.
__getattr__, __dir__, _ = lazy_loader.attach(__name__, submodules=["plots"])
