"""Test witnesses of slow periods against chance, without deciding a cause. Pure."""
