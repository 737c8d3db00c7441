"""The commands of tenants, from what is asked to what is answered."""
