"""Import of models made elsewhere, and export to CTranslate2."""
