"""Localisation: documents in, the same documents out, translated.

document      segments and spans: `Document.with_targets` changes the spans of its targets only
formats       table of the formats: plain, subtitles, html, po
units         segments that are written together, of formats made of messages
plurals       plural forms of languages
sentences     a text as its sentences and the characters between them
placeholders  found, replaced by marks, checked
translate     from segments to translations in which each placeholder is once
"""
