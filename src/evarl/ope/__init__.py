"""What others would have said: values of a policy from data that other policies logged."""
