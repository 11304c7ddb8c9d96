"""Scores of outputs against references, and their significance."""

from transduce.metrics.error_rates import edit_distance, group_by_source, word_error_rate
from transduce.metrics.measure import METRICS, make_metric, measure
from transduce.metrics.metric import Comparison, Metric, bootstrap_interval, paired_bootstrap

__all__ = [
    "METRICS",
    "Comparison",
    "Metric",
    "bootstrap_interval",
    "edit_distance",
    "group_by_source",
    "make_metric",
    "measure",
    "paired_bootstrap",
    "word_error_rate",
]
