"""Values as bytes, in as few of them as they need, and back."""
