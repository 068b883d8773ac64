"""How a policy is trained."""
