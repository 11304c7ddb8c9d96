"""Runs: trained models in their directories, made, loaded and used."""
