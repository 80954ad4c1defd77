"""Rows of tokens through models that attend in windows and stages, not over one sequence of tokens."""

from lrptrain.relevance.token_rows.walk import TokenRows as TokenRows
