"""The roles that make jobs fire on time: scheduler, auditor and dispatcher."""
