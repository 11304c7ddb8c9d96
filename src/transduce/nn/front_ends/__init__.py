"""Front ends: raw input to vectors."""
