"""Localisation: documents in, the same documents out, translated.

sentences   a text as its sentences and the characters between them
"""
