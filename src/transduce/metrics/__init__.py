"""Scores of outputs against references, and their significance."""

from transduce.metrics.measure import METRICS, make_metric, measure
from transduce.metrics.metric import Metric
from transduce.metrics.significance import Comparison, bootstrap_interval, paired_bootstrap
from transduce.metrics.symbols import edit_distance, group_by_source, word_error_rate

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
