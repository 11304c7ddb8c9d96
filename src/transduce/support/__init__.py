"""Small tools of every floor: limits, locks, tables of HTML."""
