"""The evaluator: labels, judgements, metrics and statistics."""
