"""Records as a pandas DataFrame, where pandas is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def dataframe(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """Return records as a DataFrame with these columns; ImportError with the line to install if pandas is missing."""
    try:
        import pandas
    except ImportError:
        raise ImportError("to_dataframe needs pandas: python -m pip install pandas") from None
    return pandas.DataFrame(list(records), columns=list(columns))
