"""How people ask."""
