"""The zoo: small models trained under many methods, and what they say of the claims of their sources."""
