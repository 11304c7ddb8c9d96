"""Models made elsewhere, turned into ours."""
