"""Import models from other toolkits, and export to them."""
